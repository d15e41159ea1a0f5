//! Where each version of PHP keeps what we read. Plain numbers, one file per version.
//!
//! Adding a version: its headers in `xtask/src/zend_offsets.rs`, `cargo xtask zend-offsets`, its module and one line in
//! [`TABLES`]; what is in no header is looked up in `unlisted.rs`. Then the tests, which run on it by themselves once
//! testkit finds it. Only builds without thread safety and without debug checks are read:
//! the others lay out everything differently.

mod unlisted;
mod v8_2;
mod v8_4;

pub(crate) use unlisted::{FCGI, MmHeap, OPCACHE, Opcache};

use unlisted::{MM_HEAP_8_2, MM_HEAP_8_4};

/// All tables, oldest first.
const TABLES: &[(&Offsets, &MmHeap)] = &[(&v8_2::TABLE, &MM_HEAP_8_2), (&v8_4::TABLE, &MM_HEAP_8_4)];

/// The table of one module API number, and what its headers do not tell.
pub(crate) fn table(zend_module_api_no: u32) -> Option<(&'static Offsets, &'static MmHeap)> {
    TABLES.iter().copied().find(|(table, _)| table.zend_module_api_no == zend_module_api_no)
}

/// The versions that have a table, oldest first.
pub(crate) fn versions() -> impl Iterator<Item = (u8, u8)> {
    TABLES.iter().map(|(table, _)| table.version)
}

/// What has kept its place since PHP 7.3 and is needed to find out the version.
pub(crate) const ANY: &Offsets = &v8_4::TABLE;

macro_rules! table {
    ($(#[$doc:meta])* $name:ident { $($field:ident : $ty:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) struct $name { $(pub(crate) $field: $ty),* }
    };
}

table!(
    /// Everything about one version.
    Offsets {
        version: (u8, u8),
        zend_module_api_no: u32,
        module_entry: ModuleEntry,
        hash_table: HashTable,
        executor_globals: ExecutorGlobals,
        compiler_globals: CompilerGlobals,
        sapi_globals: SapiGlobals,
        sapi_module: SapiModule,
        execute_data: ExecuteData,
        function: Function,
        op: Op,
        class_entry: ClassEntry,
        string: ZendString,
        generator: Generator,
        fiber: Fiber,
        zval: Zval,
    }
);

table!(
    /// `zend_module_entry`.
    ModuleEntry {
        size: usize,
        zend_api: usize,
        zend_debug: usize,
        zts: usize,
        name: usize,
        version: usize,
        module_started: usize,
    }
);

table!(
    /// `HashTable` and its `Bucket`.
    HashTable {
        ar_data: usize,
        n_num_used: usize,
        n_num_of_elements: usize,
        bucket_size: usize,
        bucket_ptr: usize,
    }
);

table!(
    /// `zend_executor_globals`.
    ExecutorGlobals {
        included_files: usize,
        vm_stack_end: usize,
        vm_stack: usize,
        current_execute_data: usize,
        opline_before_exception: usize,
        exception_op: usize,
        exception_op_len: usize,
        active_fiber: usize,
    }
);

table!(
    /// `zend_compiler_globals`.
    CompilerGlobals { function_table: usize }
);

table!(
    /// `sapi_globals_struct`, its `request_info` included.
    SapiGlobals {
        server_context: usize,
        request_method: usize,
        query_string: usize,
        path_translated: usize,
        request_uri: usize,
        sapi_started: usize,
        global_request_time: usize,
    }
);

table!(
    /// `sapi_module_struct`.
    SapiModule { name: usize }
);

table!(
    /// `zend_execute_data`: a frame, and the flag in its call information that the engine, not code, made the call.
    ExecuteData {
        size: usize,
        opline: usize,
        return_value: usize,
        func: usize,
        this: usize,
        prev_execute_data: usize,
        zend_call_top: u32,
    }
);

table!(
    /// `zend_function`: the part that all functions have, `zend_op_array`, and the constants that tell them apart.
    Function {
        kind: usize,
        fn_flags: usize,
        function_name: usize,
        scope: usize,
        last: usize,
        opcodes: usize,
        filename: usize,
        line_start: usize,
        line_end: usize,
        zend_internal_function: u8,
        zend_user_function: u8,
        zend_eval_code: u8,
        zend_acc_closure: u32,
        zend_acc_fake_closure: u32,
        zend_acc_call_via_trampoline: u32,
    }
);

table!(
    /// `zend_op`, and the opcodes that matter to us.
    Op {
        size: usize,
        op1_var: usize,
        op2_constant: usize,
        op2_var: usize,
        result_var: usize,
        extended_value: usize,
        lineno: usize,
        opcode: usize,
        op1_type: usize,
        op2_type: usize,
        is_const: u8,
        zend_init_fcall: u8,
        zend_init_fcall_by_name: u8,
        zend_init_ns_fcall_by_name: u8,
        zend_init_method_call: u8,
        zend_init_static_method_call: u8,
        zend_init_user_call: u8,
        zend_init_dynamic_call: u8,
        zend_init_parent_property_hook_call: Option<u8>,
        zend_new: u8,
        zend_callable_convert: u8,
        zend_do_fcall: u8,
        zend_do_icall: u8,
        zend_do_ucall: u8,
        zend_do_fcall_by_name: u8,
        zend_call_trampoline: u8,
        zend_check_undef_args: u8,
        zend_fetch_obj_r: u8,
        zend_fetch_obj_func_arg: u8,
        zend_user_opcode: u8,
        zend_include_or_eval: u8,
        zend_frameless_icall_0: Option<u8>,
        zend_eval: u32,
        zend_include: u32,
        zend_include_once: u32,
        zend_require: u32,
        zend_require_once: u32,
    }
);

table!(
    /// `zend_class_entry`.
    ClassEntry { name: usize }
);

table!(
    /// `zend_string`.
    ZendString { len: usize, val: usize }
);

table!(
    /// `zend_generator`.
    Generator {
        execute_data: usize,
        node_parent: usize,
        execute_fake: usize,
    }
);

table!(
    /// `zend_fiber`, and the flag that it is being destroyed.
    Fiber {
        flags: usize,
        stack_bottom: usize,
        zend_fiber_flag_destroyed: u8,
    }
);

table!(
    /// `zval`, and some of its types.
    Zval {
        size: usize,
        type_info: usize,
        is_undef: u8,
        is_null: u8,
        is_string: u8,
        is_object: u8,
    }
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_the_version_is_the_same_in_all_versions() {
        for (table, _) in TABLES {
            assert_eq!(table.module_entry, ANY.module_entry);
            assert_eq!(table.hash_table, ANY.hash_table);
            assert_eq!(table.sapi_module, ANY.sapi_module);
            assert_eq!(table.compiler_globals, ANY.compiler_globals);
        }
    }

    #[test]
    fn tables_are_sorted_and_found_by_their_number() {
        assert!(TABLES.is_sorted_by_key(|(table, _)| table.version));
        for (wanted, _) in TABLES {
            assert_eq!(
                table(wanted.zend_module_api_no).map(|(table, _)| table.version),
                Some(wanted.version)
            );
        }
        assert!(table(0).is_none());
    }
}
