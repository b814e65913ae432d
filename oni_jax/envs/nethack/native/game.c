/* Pressing keys. See game.h. */

#define _GNU_SOURCE /* memmem */
#include "game.h"

#include <string.h>

enum { SPACE = ' ', ESCAPE = 27, YES = 'y', FIRST_ITEM = 'a', CAST = 'Z', QUIT = 0x80 | 'q', ENHANCE = 0x80 | 'e' };

/* Indices into `internal` of what the game waits for, and of the move loop into `program_state` */
enum { IN_QUESTION = 1, IN_LINE_INPUT = 2, IN_MORE = 3, IN_MOVE_LOOP = 3 };

/* Questions that are left to the agent */
static const char *const QUESTIONS[] = { "eat", "attack", "direction?", "pray", "drink" };
enum { NUM_QUESTIONS = sizeof QUESTIONS / sizeof *QUESTIONS };
enum { NO_QUESTIONS = 0, ALL_QUESTIONS = (1 << NUM_QUESTIONS) - 1, CONTINUAL_QUESTIONS = ALL_QUESTIONS >> 1 };

static bool holds(const unsigned char *text, size_t length, const char *part)
{
    return memmem(text, length, part, strlen(part)) != NULL;
}

/* Returns the first letter of the first "[letters" in the text; 0: there is none. */
static unsigned char first_choice(const unsigned char *text, size_t length)
{
    for (size_t i = 0; i + 1 < length; i++) {
        unsigned char next = text[i + 1];
        if (text[i] == '[' && ((next >= 'a' && next <= 'z') || (next >= 'A' && next <= 'Z')))
            return next;
    }
    return 0;
}

static void read_message(struct game *game)
{
    const unsigned char *message = game->engine.buffers.message;
    struct facts *facts = &game->facts;
    memset(facts, 0, sizeof *facts);
    size_t length = strnlen((const char *) message, MESSAGE_SIZE);
    if (length == 0)
        return;
    unsigned char lower[MESSAGE_SIZE];
    for (size_t i = 0; i < length; i++)
        lower[i] = message[i] >= 'A' && message[i] <= 'Z' ? message[i] + ('a' - 'A') : message[i];
    facts->kill = holds(lower, length, "you kill ");
    facts->skill = holds(message, length, "You feel more confident in");
    facts->kept = holds(message, length, "You descend the stairs.");
    facts->eat_prompt = holds(message, length, "What do you want to eat");
    facts->drink_prompt = holds(message, length, "What do you want to drink");
    facts->first_choice = first_choice(message, length);
    for (int i = 0; i < NUM_QUESTIONS; i++)
        facts->questions |= (unsigned) holds(message, length, QUESTIONS[i]) << i;
}

/* Presses a key and reads the message after it. */
static enum failure press(struct game *game, int key)
{
    enum failure failure = engine_press(&game->engine, key);
    if (!failure)
        read_message(game);
    return failure;
}

/* Presses keys up to the first turn, which may ask for a name. */
static enum failure open_game(struct game *game)
{
    const struct engine_buffers *seen = &game->engine.buffers;
    for (int64_t n = 0; n < game->rules->max_opening_presses; n++) {
        if (seen->program_state[IN_MOVE_LOOP])
            return NO_FAILURE;
        enum failure failure = engine_press(&game->engine, seen->internal[IN_LINE_INPUT] ? ESCAPE : SPACE);
        if (failure)
            return failure;
    }
    return NEVER_BEGAN;
}

enum failure game_start(struct game *game, uint64_t core_seed, uint64_t display_seed)
{
    enum failure failure = engine_start(&game->engine, core_seed, display_seed);
    if (!failure)
        failure = open_game(game);
    game->is_dead = false;
    read_message(game);
    return failure;
}

/* Presses space at a --More--. A message about stairs is written back, which the key has dismissed. */
static enum failure dismiss(struct game *game)
{
    unsigned char *message = game->engine.buffers.message;
    unsigned char kept[MESSAGE_SIZE];
    bool is_kept = game->facts.kept;
    if (is_kept)
        memcpy(kept, message, MESSAGE_SIZE);
    enum failure failure = press(game, SPACE);
    if (!failure && is_kept) {
        memcpy(message, kept, MESSAGE_SIZE);
        read_message(game);
    }
    return failure;
}

static enum failure enhance_skill(struct game *game)
{
    enum failure failure = NO_FAILURE;
    const int keys[] = { ENHANCE, FIRST_ITEM };
    for (int i = 0; i < 2 && !failure && !game->engine.buffers.done; i++)
        failure = press(game, keys[i]);
    return failure;
}

/* Answers prompts that are not left to the agent, up to the game's end. `pressed`: the last key. */
static enum failure answer_prompts(struct game *game, int pressed, unsigned questions_left)
{
    const struct engine_buffers *seen = &game->engine.buffers;
    bool enhance = false;
    for (int64_t n = 0; n < game->rules->max_automatic_presses; n++) {
        enum failure failure = NO_FAILURE;
        if (seen->done)
            return NO_FAILURE;
        if (game->rules->extended) {
            if (pressed == CAST && (failure = press(game, FIRST_ITEM)))
                return failure;
            enhance = enhance || game->facts.skill;
        }
        if (seen->internal[IN_MORE] || seen->internal[IN_LINE_INPUT]) {
            pressed = seen->internal[IN_MORE] ? SPACE : ESCAPE;
            failure = pressed == SPACE ? dismiss(game) : press(game, ESCAPE);
            if (failure)
                return failure;
            continue;
        }
        if (seen->internal[IN_QUESTION]) {
            if (game->facts.questions & questions_left)
                return NO_FAILURE;
            if ((failure = press(game, ESCAPE)))
                return failure;
        }
        return enhance ? enhance_skill(game) : NO_FAILURE;
    }
    return STILL_PROMPTS;
}

/* Returns the key to press for the agent's key. */
static int translate(const struct game *game, int key)
{
    const struct facts *facts = &game->facts;
    if (facts->eat_prompt || (facts->drink_prompt && game->rules->extended))
        /* Yes to a question for an item takes the first one offered; any other key declines. */
        return facts->first_choice && key == YES ? facts->first_choice : SPACE;
    return key;
}

enum failure game_step(struct game *game, int key, int64_t *kill_count)
{
    const struct engine_buffers *seen = &game->engine.buffers;
    *kill_count += game->facts.kill;
    key = translate(game, key);
    enum failure failure = press(game, key);
    if (!failure && !seen->done) {
        const int *waits = seen->internal;
        bool is_asking = waits[IN_MORE] || waits[IN_QUESTION] || waits[IN_LINE_INPUT];
        if (is_asking || (game->rules->extended && (key == CAST || game->facts.skill)))
            failure = answer_prompts(game, key, game->rules->continual ? CONTINUAL_QUESTIONS : ALL_QUESTIONS);
    }
    game->is_dead = !failure && seen->done;
    return failure;
}

enum failure game_quit(struct game *game)
{
    const struct engine_buffers *seen = &game->engine.buffers;
    enum failure failure = answer_prompts(game, SPACE, NO_QUESTIONS);
    const int keys[] = { QUIT, YES };
    for (int i = 0; i < 2 && !failure && !seen->done; i++)
        failure = press(game, keys[i]);
    if (!failure && !seen->done)
        failure = answer_prompts(game, SPACE, NO_QUESTIONS);
    return failure;
}
