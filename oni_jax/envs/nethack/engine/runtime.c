/* What the engine takes its __cxa_atexit from: the destructors of a game's C++ objects are called when the game ends, and
 * not with the process, which may have many after it. */

typedef int (*registrar)(void (*function)(void *), void *object, void *library);

__attribute__((visibility("hidden"))) registrar oni_register; /* of the stepper */

__attribute__((visibility("hidden"))) int __cxa_atexit(void (*function)(void *), void *object, void *library)
{
    return oni_register(function, object, library);
}
