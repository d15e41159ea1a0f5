/* Runs the constructors of a program on every glibc.
 *
 * Up to 2.33 they were run by a function of the program itself, which _start handed to __libc_start_main. The _start of later
 * ones hands over none, and their __libc_start_main runs the constructors if it gets none. So with this one, whichever of both runs
 * the program runs them once. Linked with --wrap=__libc_start_main. */
typedef void (*constructor_t)(int, char **, char **);

extern constructor_t __init_array_start[] __attribute__((visibility("hidden")));
extern constructor_t __init_array_end[] __attribute__((visibility("hidden")));
extern void _init(void);

int __real___libc_start_main(int (*)(int, char **, char **), int, char **, constructor_t, void (*)(void), void (*)(void), void *);
int __wrap___libc_start_main(int (*)(int, char **, char **), int, char **, constructor_t, void (*)(void), void (*)(void), void *);

static void construct(int argc, char **argv, char **envp)
{
	_init();
	for (constructor_t *at = __init_array_start; at < __init_array_end; at++) {
		(*at)(argc, argv, envp);
	}
}

int __wrap___libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, constructor_t init, void (*fini)(void),
	void (*rtld_fini)(void), void *stack_end)
{
	return __real___libc_start_main(main, argc, argv, init ? init : construct, fini, rtld_fini, stack_end);
}
