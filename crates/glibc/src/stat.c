/* What glibc up to 2.32 linked into each program in place of exporting it. Without its headers, which differ in what they say of these. */

/* The only layout of struct stat that x86-64 has, with struct stat64 the same, and the only one of mknod's device. */
#define STAT_VERSION  1
#define MKNOD_VERSION 0

typedef unsigned int mode_t;
typedef unsigned long dev_t;
struct stat;

int __xstat(int, const char *, struct stat *);
int __fxstat(int, int, struct stat *);
int __lxstat(int, const char *, struct stat *);
int __fxstatat(int, int, const char *, struct stat *, int);
int __xmknod(int, const char *, mode_t, dev_t *);
int __xmknodat(int, int, const char *, mode_t, dev_t *);

#define OWN(name) __attribute__((visibility("hidden"))) int name
#define BOTH(name, arguments, body) \
	OWN(name) arguments { return body; } \
	OWN(name##64) arguments { return body; }

BOTH(stat, (const char *path, struct stat *out), __xstat(STAT_VERSION, path, out))
BOTH(fstat, (int fd, struct stat *out), __fxstat(STAT_VERSION, fd, out))
BOTH(lstat, (const char *path, struct stat *out), __lxstat(STAT_VERSION, path, out))
BOTH(fstatat, (int fd, const char *path, struct stat *out, int flags), __fxstatat(STAT_VERSION, fd, path, out, flags))

OWN(mknod)(const char *path, mode_t mode, dev_t device) { return __xmknod(MKNOD_VERSION, path, mode, &device); }
OWN(mknodat)(int fd, const char *path, mode_t mode, dev_t device)
{
	return __xmknodat(MKNOD_VERSION, fd, path, mode, &device);
}
