"""Makes the engine's variables relative to a segment base, in gcc's assembly (x86-64, -fPIC, -fdata-sections).

A library has one copy of each variable. Here the variables move to the thread-local segment of the library, and the
code names them by their offset in it, relative to the GS register: `8+u(%rip)` becomes `%gs:u@dtpoff+8`. So a game is a
block of memory that begins as a copy of that segment, and the stepper chooses the game that the code plays by GS.
The word before the block holds its address, which `lea` needs. Pointers from variable to variable are offsets in the
segment; the section `oni_pointers` lists them, to be turned into addresses in each block.

Constants stay where they are, and shared, unless they point to a variable. A form that is not known here raises.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

BLOCK_ADDRESS = "%gs:-8"
POINTERS, CONSTRUCTORS = "oni_pointers", "oni_constructors"  # sections: offsets of pointers; functions

_NAME = r"[A-Za-z_.$][\w.$]*"
_SECTION = re.compile(r"\t\.section\t([\w.$]+)(?:,(.*))?")
_LABEL = re.compile(rf"({_NAME}):")
_ALIAS = re.compile(rf"\t\.set\t({_NAME}),({_NAME})([-+]\d+)?")
_GLOBAL = re.compile(rf"\t\.globl\t({_NAME})")
_POINTER = re.compile(rf"\t\.quad\t({_NAME})([-+]\d+)?")
_RELATIVE = re.compile(r"([^\s,*]+)\(%rip\)")
_OPERAND = re.compile(rf"(?:([-+]?\d+)\+)?({_NAME})(@GOTPCREL)?([-+]\d+)?")
_LOAD_ADDRESS = re.compile(r"\t(?:leaq|movq)\t\S+\(%rip\), (%r\w+)")
_SYMBOL = re.compile(r"(?<![\w.%@])[A-Za-z_.][\w.$]*")
_ABOUT_SYMBOLS = ("globl", "hidden", "type", "size", "weak")  # directives that hold for thread-local ones, too
_TEXTS = ("string", "ascii", "ident", "file", "section")
_FUNCTION_SECTIONS = (".text", ".rodata", ".gcc_except_table", ".eh_frame", ".note.GNU-stack")


class UnknownFormError(Exception):
    """The compiler's output has a form that is not known."""


class Module(NamedTuple):
    """A module's assembly.

    Attributes:
      lines: of it.
      sections: symbol -> the section that defines it.
      aliases: symbol -> the symbol that it is another name of.
      globals: symbols that other modules see.
      pointers: section -> symbols that it points to.
    """

    lines: list[str]
    sections: dict[str, str]
    aliases: dict[str, str]
    globals: set[str]
    pointers: dict[str, set[str]]


def rewrite(texts: Iterable[str]) -> list[str]:
    """Rewrites the modules of a library, all of them together.

    Raises:
      UnknownFormError: there is a form that is not known.
    """
    modules = [_read(text) for text in texts]
    moved = _moved_symbols(modules)
    return ["\n".join(_rewritten(module, moved[i], i)) + "\n" for i, module in enumerate(modules)]


def _read(text: str) -> Module:
    module = Module(text.splitlines(), {}, {}, set(), {})
    section = ".text"
    for line in module.lines:
        if line.startswith("\t."):
            if named := _section_of(line):
                section = named
            elif found := _ALIAS.fullmatch(line):
                module.aliases[found[1]] = found[2]
            elif found := _GLOBAL.fullmatch(line):
                module.globals.add(found[1])
            elif found := _POINTER.fullmatch(line):
                module.pointers.setdefault(section, set()).add(found[1])
            elif line.startswith(("\t.comm", "\t.lcomm", "\t.pushsection", "\t.popsection", "\t.previous")):
                raise UnknownFormError(line)
        elif found := _LABEL.match(line):
            module.sections[found[1]] = section
    return module


def _section_of(line: str) -> str:
    """Returns the section that begins with this line; "": none does."""
    if found := _SECTION.match(line):
        return found[1]
    if line in ("\t.text", "\t.data", "\t.bss"):
        return line.strip()
    return ""


def _is_variable(section: str) -> bool:
    if section.startswith(".data.rel.local.DW.ref."):  # the unwinder's
        return False
    return section.startswith((".data", ".bss")) and not section.startswith(".data.rel.ro")


def _moved_symbols(modules: list[Module]) -> list[set[str]]:
    """Returns each module's names of the symbols that move: of variables, and of constants that point to them."""
    moved = [{name for name, section in module.sections.items() if _is_variable(section)} for module in modules]
    while True:
        shared: set[str] = set().union(*(names & module.globals for names, module in zip(moved, modules, strict=True)))
        count = sum(map(len, moved))
        for module, names in zip(modules, moved, strict=True):
            names |= {name for name in shared if name not in module.sections and name not in module.aliases}
            names |= {name for name, other in module.aliases.items() if other in names}
            sections = {section for section, pointed in module.pointers.items() if not pointed.isdisjoint(names)}
            sections -= {section for section in sections if section.startswith(".data.rel.local.DW.ref.")}
            names |= {name for name, section in module.sections.items() if section in sections}
        if sum(map(len, moved)) == count:
            return moved


def _rewritten(module: Module, moved: set[str], index: int) -> Iterator[str]:
    moved_sections = {module.sections[name] for name in moved & module.sections.keys()}
    if bad := [name for name in moved_sections if name.startswith(_FUNCTION_SECTIONS)]:
        raise UnknownFormError(f"a pointer to a variable in {bad[0]}")
    section, num_pointers = ".text", 0
    for line in module.lines:
        if named := _section_of(line):
            section = named
            yield _section_line(line, named, moved_sections)
        elif line.startswith("\t.quad") and (found := _POINTER.fullmatch(line)) and found[1] in moved:
            label = f".Loni_pointer_{index}_{num_pointers}"
            num_pointers += 1
            yield f"{label}:\n\t.quad\t{found[1]}@dtpoff{found[2] or ''}"
            yield f'\t.section\t{POINTERS},"a"\n\t.quad\t{label}@dtpoff'
            yield _section_line(f'\t.section\t{section},"aw"', section, moved_sections)
        elif "(%rip)" in line:
            yield _instruction(line, moved)
        else:
            _check_unmoved(line, moved)
            yield line


def _section_line(line: str, name: str, moved_sections: set[str]) -> str:
    if name == ".init_array":
        return f'\t.section\t{CONSTRUCTORS},"aw"'
    if name not in moved_sections:
        if _is_variable(name) and name not in (".data", ".bss"):
            raise UnknownFormError(line)
        if name.startswith((".ctors", ".dtors", ".fini_array", ".preinit_array", ".tdata", ".tbss")):
            raise UnknownFormError(line)
        return line
    found = _SECTION.fullmatch(line)
    if not found or not re.fullmatch(r'"aw"(,@nobits|,@progbits)?', found[2] or ""):
        raise UnknownFormError(line)
    if name.startswith(".bss"):
        return f'\t.section\t.tbss{name.removeprefix(".bss")},"awT",@nobits'
    return f'\t.section\t.tdata{name.removeprefix(".data")},"awT",@progbits'


def _instruction(line: str, moved: set[str]) -> str:
    """Rewrites an instruction with an operand that is relative to the instruction pointer."""
    operands = _RELATIVE.findall(line)
    found = _OPERAND.fullmatch(operands[0])
    if len(operands) != 1 or not found:
        raise UnknownFormError(line)
    before, name, table, after = found.groups()
    if name not in moved:
        return line
    offset = int(before or 0) + int(after or 0)
    address = f"{name}@dtpoff{offset:+d}" if offset else f"{name}@dtpoff"
    if table or line.startswith("\tlea"):
        loads = _LOAD_ADDRESS.fullmatch(line)
        if not loads or offset and table or line.startswith("\tmov") != bool(table):
            raise UnknownFormError(line)
        return f"\tmovq\t{BLOCK_ADDRESS}, {loads[1]}\n\tleaq\t{address}({loads[1]}), {loads[1]}"
    return line.replace(f"{operands[0]}(%rip)", f"%gs:{address}")


def _check_unmoved(line: str, moved: set[str]) -> None:
    """Raises UnknownFormError where a line that stays as it is names a variable otherwise than known."""
    if line.startswith("\t."):
        directive = line[2:].split("\t", 1)[0]
        if directive in _ABOUT_SYMBOLS or directive in _TEXTS or _ALIAS.fullmatch(line):
            return
    elif not line.startswith("\t"):
        return
    _, _, operands = line[1:].partition("\t")
    if not moved.isdisjoint(_SYMBOL.findall(operands)):
        raise UnknownFormError(line)
