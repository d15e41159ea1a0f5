//! Rules of what is switched on in name and unused in fact. They cost time as well, but mostly how much is not known until it is changed.

use crate::Rule;

/// Opcache does not keep code.
pub static CFG011: Rule = Rule {
    id: "CFG011",
    title: "opcache keeps no code",
    means: "Without opcache PHP reads, parses and compiles each file of the application again in every request, before it runs it.",
    decides: "PHP itself says, when it is asked (`--ask`), whether opcache is loaded, takes part in requests, keeps code in memory or in files \
              alone, and how many scripts were taken from it and how many were compiled. Of at least 1,000 scripts a tenth or more has to have \
              been compiled.",
    helps: "opcache.enable=1, and the extension loaded (zend_extension=opcache). If scripts are missed: no blacklist of hot code, no script \
            under a new name in each request, opcache.file_update_protection only where files are written while they are served.",
};

/// Opcache has no room.
pub static CFG012: Rule = Rule {
    id: "CFG012",
    title: "opcache has no room, or begins anew",
    means: "What no longer fits into opcache is compiled in every request that needs it. When enough of its memory is lost to scripts that have \
            changed, it throws all away and begins anew, and meanwhile every worker compiles.",
    decides: "PHP says, when it is asked (`--ask`), how much of opcache's memory, of its table of names and of its room for strings is free, \
              and how often it has begun anew because of that, or because somebody asked for it: more than once in ten minutes.",
    helps: "Larger opcache.memory_consumption, opcache.max_accelerated_files or opcache.interned_strings_buffer; fewer calls of \
            opcache_reset(); old releases removed from opcache by a restart of the pool when a new one is deployed.",
};

/// The compiler of machine code is not used.
pub static CFG013: Rule = Rule {
    id: "CFG013",
    title: "the JIT is configured and not used",
    means: "PHP can compile hot code to machine code. It does so only if it has memory for that, and if no other extension steps in when \
            functions are called.",
    decides: "PHP says, when it is asked (`--ask`), how the JIT is configured, whether it is on, and what of its buffer is free. A JIT that is \
              off by its own setting is not told.",
    helps: "opcache.jit_buffer_size above 0 (it is 0 by default before PHP 8.4); no debugger or tracer in production. Pages that wait for \
            servers gain nothing from it: if that is all, opcache.jit=off says so.",
};

/// Preloaded code is stale.
pub static CFG014: Rule = Rule {
    id: "CFG014",
    title: "preloading is configured, and not what runs is preloaded",
    means: "Code that is preloaded is loaded once, when PHP-FPM starts, and never looked at again: what changes later is not seen until the next \
            start.",
    decides: "PHP says, when it is asked (`--ask`), which files were preloaded. Their times are compared with that of the start.",
    helps: "A reload of PHP-FPM with each deployment (`systemctl reload`, SIGUSR2 to the master), which preloads again.",
};

/// The cache of real paths is off or full.
pub static CFG015: Rule = Rule {
    id: "CFG015",
    title: "the cache of real paths is off or full",
    means: "PHP resolves each path that is included, folder by folder, by system calls. It keeps what it found, in each worker, unless that \
            cache is off or has no room.",
    decides: "PHP says, when it is asked (`--ask`), how large that cache may be and how much of it is in use: 95 % and more is full. With \
              open_basedir in php.ini it is off.",
    helps: "A larger realpath_cache_size; a longer realpath_cache_ttl where paths do not change; limits of the file system in the place of \
            open_basedir.",
};

/// Persistent connections are not used again.
pub static CFG016: Rule = Rule {
    id: "CFG016",
    title: "connections are configured to persist, and do not",
    means: "A persistent connection saves the next request making one, if that finds it: it has to be asked for in the same way, by the same \
            worker, and must not have been closed.",
    decides: "PHP says, when it is asked (`--ask`), whether sessions are kept in Redis by persistent connections. Those to Redis are counted from \
              outside: nine for each ten requests, or more, are too many. Of MySQL nothing is said: mysqlnd counts all that begin with \
              mysqli_init() as persistent.",
    helps: "The same user, database, host and options in each request; a limit of connections that is no smaller than the number of workers; a \
            server that does not close idle connections within seconds.",
};

/// Huge pages are asked for and refused.
pub static CFG017: Rule = Rule {
    id: "CFG017",
    title: "huge pages are asked for, and there are none",
    means: "A huge page takes one entry of the CPU's table of addresses in the place of 512. Programs may ask for them; the kernel gives them \
            only if it is set up for that, and says nothing if it is not.",
    decides: "The workers' environment asks for them (USE_ZEND_ALLOC_HUGE_PAGES, glibc.malloc.hugetlb in GLIBC_TUNABLES), or \
              opcache.huge_code_pages does (`--ask`); the kernel's setting and its count of huge pages in each worker (smaps) say whether there \
              are any.",
    helps: "`echo madvise > /sys/kernel/mm/transparent_hugepage/enabled`, or no wish for huge pages. Whether they gain anything shows only a \
            comparison.",
};

/// Workers' memory is in the swap.
pub static CFG018: Rule = Rule {
    id: "CFG018",
    title: "memory of workers is in the swap",
    means: "Memory that was moved to the swap has to be read from a disk when it is touched: milliseconds in the place of nanoseconds.",
    decides: "The kernel counts what of each worker is in the swap (smaps), and page faults for which something was read. It is told if there \
              is at least 1 MiB in the swap and ten such faults came while we watched. Faults that read files count as well, so this is never \
              certain.",
    helps: "Fewer workers, or more memory; a lower limit of what else runs on the machine.",
};

/// The limit of memory was reached.
pub static CFG019: Rule = Rule {
    id: "CFG019",
    title: "the control group's limit of memory is reached",
    means: "At its limit, a control group has to give memory back before it gets more: its processes do that themselves, when they ask for memory, \
            or touch it. Files that they read are thrown out of memory, and read again.",
    decides: "The kernel counts how often memory.high or memory.max was reached (memory.events) in the workers' control groups and those around \
              them; what came while we watched is told.",
    helps: "A higher limit (systemd: MemoryHigh=, MemoryMax=), or fewer workers.",
};
