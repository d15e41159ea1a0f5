/* Nothing is relocated on the host. */
#define BPF_CORE_READ(pointer, field) ((pointer)->field)
