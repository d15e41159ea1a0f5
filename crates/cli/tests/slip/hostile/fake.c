/* Not an interpreter, but it has the names of one. Its argument is what all of their structures hold; `self` makes each
 * word point to the structure that it is in. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 4096
typedef uint64_t structure[COUNT];

static void fill(uint64_t *words, const char *with) {
    uint64_t value = strcmp(with, "self") == 0 ? (uint64_t)words : strtoull(with, NULL, 0);
    for (int at = 0; at < COUNT; at++)
        words[at] = value;
}

#ifdef PYTHON
structure _PyRuntime;
uint32_t Py_Version = PYTHON;
static void pretend(const char *with) {
    fill(_PyRuntime, with);
    if (PYTHON >= 0x030d0000) {
        memcpy(_PyRuntime, "xdebugpy", 8);
        _PyRuntime[1] = PYTHON;
        _PyRuntime[2] = 0;
    }
}
#else
structure executor_globals, compiler_globals, core_globals, sapi_globals, sapi_module, module_registry;
structure basic_functions_module, zend_flf_functions;
static void pretend(const char *with) {
    uint64_t *all[] = {executor_globals, compiler_globals, core_globals,           sapi_globals,
                       sapi_module,      module_registry,  basic_functions_module, zend_flf_functions};
    for (int at = 0; at < 8; at++)
        fill(all[at], with);
}
#endif

int main(int count, char **arguments) {
    pretend(count > 1 ? arguments[1] : "0");
    puts("ready");
    fflush(stdout);
    return getchar();
}
