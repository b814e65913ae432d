# Written beforehand by rules, not by an LLM: new things are worth coming near to, whatever they are.


def compute_reward(obs, past_obs, past_actions):
    met = []  # objects that stood right before the robot in the last steps: they are not new
    for seen in past_obs:
        cell = seen["image"][3][5]
        if cell[0] >= 4:
            met.append(cell[:2])
    image, near = obs["image"], 0.0
    for x in range(7):
        for y in range(7):
            cell = image[x][y]
            is_carried = x == 3 and y == 6
            if cell[0] >= 4 and not is_carried and cell[:2] not in met:
                near = max(near, 1.0 / (abs(x - 3) + 6 - y))
    return near, {"near": near}
