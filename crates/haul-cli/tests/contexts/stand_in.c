/* What stands in for libselinux, and for a kernel with SELinux, where tests need both and the machine has neither.
 *
 * Contexts are the attributes that they are everywhere; the list of paths has three entries. GNU's tools are linked with
 * libselinux, so that a name of the C library that is defined here goes before the C library's: whatever they make is
 * labelled as a kernel would label it, by what setfscreatecon said before. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#define ATTRIBUTE "security.selinux"

static __thread char *next_label;

static int refuse(int why) {
    errno = why;
    return -1;
}

static int give(char **to, const char *text) {
    *to = strdup(text);
    return *to ? (int)strlen(text) + 1 : -1;
}

static int is_known(const char *context) { return !strstr(context, "nosuch"); }

/* One line for each thing that the kernel is told, where somebody reads it. */
static void note(const char *context) {
    const char *log = getenv("STAND_IN_LOG");
    FILE *file = log ? fopen(log, "a") : NULL;
    if (file) {
        fprintf(file, "%s\n", context ? context : "-");
        fclose(file);
    }
}

/* The library: this process and the policy. */

int is_selinux_enabled(void) { return 1; }

void freecon(char *context) { free(context); }

int getcon(char **context) { return give(context, "user_u:user_r:user_t:s0"); }

int getcon_raw(char **context) { return getcon(context); }

int selinux_trans_to_raw_context(const char *typed, char **raw) { return give(raw, typed) < 0 ? -1 : 0; }

unsigned short mode_to_security_class(mode_t mode) {
    if (!(mode & S_IFMT)) errno = EINVAL;
    return (unsigned short)((mode & S_IFMT) >> 12);
}

int security_compute_create(const char *own, const char *above, unsigned short class, char **context) {
    char type[64], text[128];
    (void)own;
    if (!class || sscanf(above, "%*[^:]:%*[^:]:%63[^:]", type) != 1) return refuse(EINVAL);
    snprintf(text, sizeof text, "user_u:object_r:%s:s0", type);
    return give(context, text) < 0 ? -1 : 0;
}

int security_compute_create_raw(const char *own, const char *above, unsigned short class, char **context) {
    return security_compute_create(own, above, class, context);
}

void *selabel_open(unsigned int backend, const void *options, unsigned int count) {
    (void)backend, (void)options, (void)count;
    if (!getenv("STAND_IN_WITHOUT_LIST")) return &next_label;
    errno = ENOENT;
    return NULL;
}

int selabel_lookup(void *list, char **context, const char *path, int mode) {
    (void)list, (void)mode;
    if (strstr(path, "/bare")) return refuse(ENOENT);
    if (strstr(path, "/broken")) return refuse(EIO);
    return give(context, strstr(path, "/web") ? "system_u:object_r:web_t:s0" : "system_u:object_r:plain_t:s0") < 0 ? -1 : 0;
}

int selabel_lookup_raw(void *list, char **context, const char *path, int mode) {
    return selabel_lookup(list, context, path, mode);
}

/* The library: files. */

static int found(ssize_t len, char *text, char **context) {
    if (len < 0) return -1;
    text[len] = 0;
    return give(context, text);
}

int getfilecon(const char *path, char **context) {
    char text[256];
    return found(getxattr(path, ATTRIBUTE, text, sizeof text - 1), text, context);
}

int lgetfilecon(const char *path, char **context) {
    char text[256];
    return found(lgetxattr(path, ATTRIBUTE, text, sizeof text - 1), text, context);
}

int fgetfilecon(int fd, char **context) {
    char text[256];
    return found(fgetxattr(fd, ATTRIBUTE, text, sizeof text - 1), text, context);
}

int lsetfilecon(const char *path, const char *context) {
    return is_known(context) ? lsetxattr(path, ATTRIBUTE, context, strlen(context) + 1, 0) : refuse(EINVAL);
}

int fsetfilecon(int fd, const char *context) {
    return is_known(context) ? fsetxattr(fd, ATTRIBUTE, context, strlen(context) + 1, 0) : refuse(EINVAL);
}

int getfscreatecon(char **context) {
    *context = NULL;
    return next_label && give(context, next_label) < 0 ? -1 : 0;
}

int setfscreatecon(const char *context) {
    note(context);
    if (context && !is_known(context)) return refuse(EINVAL);
    free(next_label);
    next_label = context ? strdup(context) : NULL;
    return 0;
}

int setfscreatecon_raw(const char *context) { return setfscreatecon(context); }

/* The library: contexts in their parts. */

struct context {
    char *parts[4];
    char *text;
};

void context_free(struct context *context) {
    if (!context) return;
    for (int at = 0; at < 4; at++) free(context->parts[at]);
    free(context->text);
    free(context);
}

struct context *context_new(const char *text) {
    struct context *context = calloc(1, sizeof *context);
    for (int at = 0; at < 4 && *text; at++) {
        size_t len = at < 3 ? strcspn(text, ":") : strlen(text);
        context->parts[at] = strndup(text, len);
        text += len + (text[len] == ':');
    }
    if (context->parts[2]) return context;
    context_free(context);
    errno = EINVAL;
    return NULL;
}

const char *context_type_get(struct context *context) { return context->parts[2]; }

int context_type_set(struct context *context, const char *type) {
    char *copy = strdup(type);
    free(context->parts[2]);
    context->parts[2] = copy;
    return copy ? 0 : 1;
}

char *context_str(struct context *context) {
    char **part = context->parts;
    free(context->text);
    if (asprintf(&context->text, "%s:%s:%s%s%s", part[0], part[1], part[2], part[3] ? ":" : "",
                 part[3] ? part[3] : "") < 0)
        context->text = NULL;
    return context->text;
}

/* The kernel: what is made gets the label that was said. */

static int labelled(int made, int dir, const char *path) {
    char name[4200];
    if (made < 0 || !next_label) return made;
    if (dir == AT_FDCWD || *path == '/')
        snprintf(name, sizeof name, "%s", path);
    else
        snprintf(name, sizeof name, "/proc/self/fd/%d/%s", dir, path);
    lsetxattr(name, ATTRIBUTE, next_label, strlen(next_label) + 1, 0);
    return made;
}

static int opened(int dir, const char *path, int flags, mode_t mode) {
    int is_new = (flags & O_CREAT) && syscall(SYS_faccessat, dir, path, F_OK) < 0;
    int fd = (int)syscall(SYS_openat, dir, path, flags, mode);
    return is_new ? labelled(fd, dir, path) : fd;
}

#define MODE(flags, last)                                   \
    mode_t mode = 0;                                        \
    if ((flags) & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))) { \
        va_list rest;                                       \
        va_start(rest, last);                               \
        mode = va_arg(rest, mode_t);                        \
        va_end(rest);                                       \
    }

int open(const char *path, int flags, ...) {
    MODE(flags, flags)
    return opened(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    MODE(flags, flags)
    return opened(AT_FDCWD, path, flags, mode);
}

int openat(int dir, const char *path, int flags, ...) {
    MODE(flags, flags)
    return opened(dir, path, flags, mode);
}

int openat64(int dir, const char *path, int flags, ...) {
    MODE(flags, flags)
    return opened(dir, path, flags, mode);
}

int mkdirat(int dir, const char *path, mode_t mode) {
    return labelled((int)syscall(SYS_mkdirat, dir, path, mode), dir, path);
}

int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

int mknodat(int dir, const char *path, mode_t mode, dev_t device) {
    return labelled((int)syscall(SYS_mknodat, dir, path, mode, (unsigned int)device), dir, path);
}

int symlinkat(const char *target, int dir, const char *path) {
    return labelled((int)syscall(SYS_symlinkat, target, dir, path), dir, path);
}
