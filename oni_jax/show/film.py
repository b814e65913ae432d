"""A film of an episode that a notebook shows."""

import base64
import dataclasses
import html
import os
import tempfile

from oni_jax.evaluation.players import Player
from oni_jax.evaluation.recording import chosen_episodes
from oni_jax.evaluation.results import Evaluation
from oni_jax.show.recordings import PICTURES_PER_SEC, pictures
from oni_jax.show.video import gif


@dataclasses.dataclass(frozen=True)
class Film:
    """A film of an episode; the last expression of a notebook's cell shows it."""

    data: bytes = dataclasses.field(repr=False)  # bytes of a GIF file
    about: str

    def save(self, path: str | os.PathLike) -> None:
        """Writes it as a GIF file."""
        with open(path, "wb") as file:
            file.write(self.data)

    def _repr_html_(self) -> str:
        about, data = html.escape(self.about), base64.b64encode(self.data).decode()
        image = f'<img src="data:image/gif;base64,{data}" alt="{about}">'
        return f"<figure>{image}<figcaption>{about}</figcaption></figure>"


def film_of(player: Player, evaluation: Evaluation, rank: str) -> Film:
    """Makes a film of a player's best, median or worst episode."""
    choices = chosen_episodes(evaluation.episodes, 1)
    choice = next((choice for choice in choices if choice.rank == rank), choices[0])  # few episodes lack ranks
    stats = choice.episode.stats
    about = f"{evaluation.player}, {evaluation.root_env}: the {rank} of {len(evaluation.episodes)} episodes, "
    about += f"return {stats['return']:g} in {stats['length']:,.0f} steps"
    with tempfile.TemporaryDirectory() as folder:
        data = gif(pictures(player, evaluation, choice, os.path.join(folder, "ttyrec")), PICTURES_PER_SEC)
    return Film(data, about)
