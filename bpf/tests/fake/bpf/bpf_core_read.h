/* Nothing is relocated on the host. What cannot be read is 0. */
#define BPF_CORE_READ_1(pointer, a) ((pointer) ? (pointer)->a : 0)
#define BPF_CORE_READ_2(pointer, a, b) ((pointer) && (pointer)->a ? (pointer)->a->b : 0)
#define BPF_CORE_READ_NAME(a, b, name, ...) name
#define BPF_CORE_READ(pointer, ...) BPF_CORE_READ_NAME(__VA_ARGS__, BPF_CORE_READ_2, BPF_CORE_READ_1, )(pointer, __VA_ARGS__)
#define BPF_CORE_READ_BITFIELD_PROBED(pointer, field) (pointer)->field
#define bpf_core_field_offset(type, field) __builtin_offsetof(type, field)
#define bpf_core_type_id_kernel(type) 0
#define bpf_core_type_size(type) sizeof(type)
