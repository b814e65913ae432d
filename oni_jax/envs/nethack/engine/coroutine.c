/* Coroutines of the engine: a game waits for a key in one. x86-64, System V's calls. Compiled without -flto. */

#define _GNU_SOURCE
#include <fcontext/fcontext.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { NUM_SAVED = 6 }; /* registers that a call has to keep: rbp, rbx, r12 to r15 */

/* Saves the registers on this stack, and takes those of the other. Both ways in, a return or a call of the coroutine's
 * function, find the transfer: in rax and rdx, or in rdi and rsi. */
__asm__(".text\n"
        ".globl jump_fcontext\n"
        ".hidden jump_fcontext\n"
        ".type jump_fcontext, @function\n"
        "jump_fcontext:\n"
        "    push %rbp\n    push %rbx\n    push %r12\n    push %r13\n    push %r14\n    push %r15\n"
        "    mov %rsp, %rax\n"
        "    mov %rdi, %rsp\n"
        "    mov %rsi, %rdx\n"
        "    mov %rax, %rdi\n"
        "    pop %r15\n    pop %r14\n    pop %r13\n    pop %r12\n    pop %rbx\n    pop %rbp\n"
        "    ret\n"
        ".size jump_fcontext, . - jump_fcontext\n"
        ".section .note.GNU-stack, \"\", @progbits\n"
        ".text\n");

fcontext_stack_t create_fcontext_stack(size_t size)
{
    size_t page = (size_t) sysconf(_SC_PAGESIZE);
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0)
        abort();
    return (fcontext_stack_t) { memory + size, size };
}

void destroy_fcontext_stack(fcontext_stack_t *stack)
{
    munmap((char *) stack->sptr - stack->ssize, stack->ssize);
}

fcontext_t make_fcontext(void *stack, size_t size, void (*function)(fcontext_transfer_t))
{
    (void) size;
    uintptr_t *top = stack; /* 16-byte aligned; the function finds no address to return to */
    top -= NUM_SAVED + 2;
    for (int i = 0; i < NUM_SAVED + 2; i++)
        top[i] = 0;
    top[NUM_SAVED] = (uintptr_t) function;
    return top;
}
