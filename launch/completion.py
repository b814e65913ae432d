"""Shell completion, for bash, zsh and fish, of programs, flags, and known values of flags."""

import contextlib
import importlib
import io
from collections.abc import Iterator, Mapping, Sequence

from launch.help import FOR_SHELLS
from launch.programs import programs

# Each calls `_oni_jax_words PROGRAM BEFORE WORD`, which prints the candidates for WORD; those of the program `oni` are
# programs. A command line of no program here is left to the earlier completion of `python`.
COMMANDS = "oni oni-train oni-judge python python3"
BASH = r"""
_oni_jax() {
    local i program= word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}
    if [[ $word == "=" ]]; then word=; fi
    if [[ $before == "=" ]]; then before=${COMP_WORDS[COMP_CWORD-2]}; fi
    case ${COMP_WORDS[0]##*/} in oni-*) program=${COMP_WORDS[0]##*/oni-}; program=${program#oni-} ;; esac
    for ((i = 0; i < COMP_CWORD; i++)); do
        if ((i > 0)) && [[ ${COMP_WORDS[i-1]} != -m ]]; then continue; fi
        case ${COMP_WORDS[i]##*/} in
            oni | launch) program=oni; if ((i + 1 < COMP_CWORD)); then program=${COMP_WORDS[++i]#launch.}; fi; break ;;
            launch.*) program=${COMP_WORDS[i]#launch.}; break ;;
        esac
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
complete -o default -F _oni_jax COMMANDS
"""
ZSH = r"""
_oni_jax() {
    local i program= before=${words[CURRENT-1]}
    local -a found
    case ${words[1]:t} in oni-*) program=${${words[1]:t}#oni-} ;; esac
    for ((i = 1; i < CURRENT; i++)); do
        if ((i > 1)) && [[ ${words[i-1]} != -m ]]; then continue; fi
        case ${words[i]:t} in
            oni | launch) program=oni; if ((i + 1 < CURRENT)); then program=${words[++i]#launch.}; fi; break ;;
            launch.*) program=${words[i]#launch.}; break ;;
        esac
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
compdef _oni_jax COMMANDS
"""
FISH = r"""
function _oni_jax
    set -l before (commandline -opc)
    set -l word (commandline -ct)
    set -l typed ''  # of the word, before the value
    set -l program
    switch (path basename -- $before[1])
        case 'oni-*'
            set program (string replace oni- '' (path basename -- $before[1]))
    end
    for i in (seq (count $before))
        test $i -eq 1; or test $before[(math $i - 1)] = -m; or continue
        switch (path basename -- $before[$i])
            case oni launch
                set program oni
                set -q before[(math $i + 1)]; and set program (string replace launch. '' $before[(math $i + 1)])
                break
            case 'launch.*'
                set program (string replace launch. '' $before[$i])
                break
        end
    end
    if string match -q -- '-*=*' $word
        set before (string split -m 1 = -- $word)[1]
        set typed $before=
    end
    for found in (_oni_jax_words "$program" $before[-1] "$word" | string split -n ' ')
        echo $typed$found
    end
end
for name in COMMANDS
    complete -c $name -f -k -n '_oni_jax | count > /dev/null' -a '(_oni_jax)'
end
"""
SHELLS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def script(shell: str) -> str:
    """Returns the completion script for a shell, to be sourced from a file at its start; works in every folder."""
    names = [*programs()]
    known = {name: program_words(name) for name in names}
    of_values = {"* -m": [f"launch.{name}" for name in names], "oni *": [*names, "completion"]}
    of_values |= {"completion *": [*SHELLS]}
    of_values |= {f"{name} {flag}": rest for name in names for flag, *rest in known[name] if rest}
    of_flags = {f"{name} -*": [flag for flag, *_ in known[name]] for name in names}
    keep = f"~/.oni_jax.{shell}"
    profile = "~/.config/fish/config.fish" if shell == "fish" else f"~/.{shell}rc"
    lines = [
        f"# Keep this as a file: python -m launch completion {shell} > {keep}",
        f"# and source it in {profile}, after any other completion of python: . {keep}",
    ]
    table = _fish_table if shell == "fish" else _posix_table
    return "\n".join([*lines, *table(of_values, of_flags)]) + SHELLS[shell].rstrip().replace("COMMANDS", COMMANDS)


Words = Mapping[str, Sequence[str]]  # pattern of "PROGRAM BEFORE", or of "PROGRAM WORD" -> candidates


def _posix_table(of_values: Words, of_flags: Words) -> Iterator[str]:
    """Yields the lines of `_oni_jax_words` for bash and zsh."""
    yield "_oni_jax_words() {"
    for subject, patterns in (("$1 $2", of_values), ("$1 $3", of_flags)):
        yield f'    case "{subject}" in'
        for pattern, words in patterns.items():
            yield f"        {pattern.replace(' ', chr(92) + ' ')}) echo {' '.join(words)}; return ;;"
        yield "    esac"
    yield "}"


def _fish_table(of_values: Words, of_flags: Words) -> Iterator[str]:
    """Yields the same for fish."""
    yield "function _oni_jax_words"
    for subject, patterns in (("$argv[1] $argv[2]", of_values), ("$argv[1] $argv[3]", of_flags)):
        yield f'    switch "{subject}"'
        for pattern, words in patterns.items():
            yield f"        case '{pattern}'"
            yield f"            echo {' '.join(words)}; return"
        yield "    end"
    yield "end"


def program_words(name: str) -> list[list[str]]:
    """Returns the program's flags, each with its known values."""
    module = importlib.import_module(f"launch.{name}")
    if hasattr(module, "define_flags"):  # has flags of its own
        return [[f"--{flag}"] for flag in sorted(module.define_flags())]
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        module.main(["--help", FOR_SHELLS])
    return [line.split() for line in output.getvalue().splitlines() if line.startswith("--")]
