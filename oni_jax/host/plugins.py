"""The user's own modules; their registrations hold in every process that imports them."""

import importlib
import os
import sys
import traceback

from oni_jax.settings.fields import UserError


def load_plugins(plugin: str) -> None:
    """Imports modules, once per process; see `EnvConfig.plugin`.

    They may call `envs.registry.register_environment`, `networks.registry.register_encoder`,
    `rewards.registry.register_reward` and `annotation.queries.registry.register_query`.

    Args:
        plugin: names, separated by commas; the current folder is searched, too.

    Raises:
        UserError: one of them can't be imported.
    """
    for name in filter(None, plugin.split(",")):
        if os.getcwd() not in sys.path and "" not in sys.path:
            sys.path.append(os.getcwd())
        try:
            importlib.import_module(name)
        except UserError as error:
            raise UserError(f"--plugin {name}: {error}") from None
        except Exception as error:  # a user's code may raise anything
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            where = "; looked for in the current folder and in $PYTHONPATH" * isinstance(error, ModuleNotFoundError)
            raise UserError(f"--plugin {name}: can't be imported ({reason}){where}") from error


def plugin_error(module: str, what: str, error: Exception) -> UserError:
    """Returns an error, in a line, that blames a module for what its code `what` raised, and names its line there."""
    path = getattr(sys.modules.get(module), "__file__", None)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    where = f" in line {lines[-1]} of {path}" if lines else ""
    reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    shown = "".join(x if x.isprintable() else "?" for x in reason)
    return UserError(f"plugin {module}: its {what} failed{where} ({shown}); mend it there")
