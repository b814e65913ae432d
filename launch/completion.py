"""Shell completion, for bash and zsh, of programs, flags, and known values of flags."""

import contextlib
import importlib
import io

from launch.help import FOR_SHELLS
from launch.programs import programs

# Both call `_oni_jax_words PROGRAM BEFORE WORD`, which prints the candidates for WORD. A command line of no program
# here is left to the earlier completion of `python`.
BASH = r"""
_oni_jax() {
    local i program= word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}
    if [[ $word == "=" ]]; then word=; fi
    if [[ $before == "=" ]]; then before=${COMP_WORDS[COMP_CWORD-2]}; fi
    case ${COMP_WORDS[0]##*/} in oni-*) program=${COMP_WORDS[0]##*/oni-}; program=${program#oni-} ;; esac
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in launch.*) program=${COMP_WORDS[i]#launch.} ;; esac
    done
    if [[ -z $program && ! ( $before == -m && ( $word == launch* || -f launch/programs.py ) ) ]]; then
        if [[ -n $_oni_jax_before ]]; then "$_oni_jax_before" "$@"; fi
        return
    fi
    COMPREPLY=($(compgen -W "$(_oni_jax_words "$program" "$before" "$word")" -- "$word"))
}
for _oni_jax_loader in _comp_load _completion_loader; do  # of the package bash-completion
    if declare -F "$_oni_jax_loader" > /dev/null; then "$_oni_jax_loader" python; break; fi
done
if [[ $(complete -p python 2> /dev/null) =~ -F\ ([^\ ]+) && ${BASH_REMATCH[1]} != _oni_jax ]]; then
    _oni_jax_before=${BASH_REMATCH[1]}
fi
complete -o default -F _oni_jax python python3 oni-train oni-judge
"""
ZSH = r"""
_oni_jax() {
    local part program= before=${words[CURRENT-1]}
    local -a found
    case ${words[1]:t} in oni-*) program=${${words[1]:t}#oni-} ;; esac
    for part in ${words[2,CURRENT-1]}; do
        case $part in launch.*) program=${part#launch.} ;; esac
    done
    if [[ -z $program && ! ( $before == -m && ( $PREFIX == launch* || -f launch/programs.py ) ) ]]; then
        ${_oni_jax_before:-_files} "$@"
        return
    fi
    if [[ $PREFIX == -*=* ]]; then before=${PREFIX%%=*}; compset -P "*="; fi
    found=(${=$(_oni_jax_words "$program" "$before" "$PREFIX")})
    if (( $#found )); then compadd -a found; else _files; fi
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }
[[ ${_comps[python]} == _oni_jax ]] || _oni_jax_before=${_comps[python]}
compdef _oni_jax python python3 oni-train oni-judge
"""
SHELLS = {"bash": BASH, "zsh": ZSH}


def script(shell: str) -> str:
    """Returns the completion script for a shell, to be sourced from a file at its start; works in every folder."""
    values, flags = [], []
    for name in programs():
        known = program_words(name)
        values += [f'        "{name} {flag}") echo {" ".join(rest)}; return ;;' for flag, *rest in known if rest]
        flags.append(f'        "{name} -"*) echo {" ".join(flag for flag, *_ in known)} ;;')
    lines = [
        f"# Keep this as a file: python -m launch completion {shell} > ~/.oni_jax.{shell}",
        f"# and source it in ~/.{shell}rc, after any other completion of python: . ~/.oni_jax.{shell}",
        "_oni_jax_words() {",
        '    case "$2" in -m) echo ' + " ".join(f"launch.{name}" for name in programs()) + "; return ;; esac",
        '    case "$1 $2" in',
        *values,
        "    esac",
        '    case "$1 $3" in',
        *flags,
        "    esac",
        "}",
    ]
    return "\n".join(lines) + SHELLS[shell].rstrip()


def program_words(name: str) -> list[list[str]]:
    """Returns the program's flags, each with its known values."""
    module = importlib.import_module(f"launch.{name}")
    if hasattr(module, "define_flags"):  # has flags of its own
        return [[f"--{flag}"] for flag in sorted(module.define_flags())]
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        module.main(["--help", FOR_SHELLS])
    return [line.split() for line in output.getvalue().splitlines() if line.startswith("--")]
