#include <string.h>

char *dependency_text(void)
{
	return strdup("found by the search path of who opened it");
}
