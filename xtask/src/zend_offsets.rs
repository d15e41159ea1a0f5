//! `cargo xtask zend-offsets`: where PHP keeps what we read, asked of its own headers.
//!
//! A C program is made of the list below, compiled against the headers of one PHP and run; what it prints is the table.
//! To add a version: a line in [`HEADERS`], its module in `crates/zend/src/offsets.rs`, and `cargo xtask zend-offsets`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// A PHP whose headers we know how to find.
struct Headers {
    version: (u8, u8),
    place: Place,
}

enum Place {
    /// Asked of `php-config`.
    Config(&'static str),
    /// `usr/include/php/<module api>` in the root folder `php`.
    Root(&'static str),
}

const HEADERS: &[Headers] = &[
    Headers { version: (8, 2), place: Place::Config("php-config8.2") },
    Headers { version: (8, 4), place: Place::Root("20240924") },
];

/// A group of the table: its name in Rust, and its fields.
struct Group {
    name: &'static str,
    ty: &'static str,
    fields: &'static [Field],
}

/// Name in Rust, the C expression, and what to do where the C expression does not exist in some versions.
struct Field {
    name: &'static str,
    value: &'static str,
    /// A macro that must be defined, or else the field is `None`. Empty: the field is not optional.
    only_if: &'static str,
}

const fn field(name: &'static str, value: &'static str) -> Field {
    Field { name, value, only_if: "" }
}

const fn optional(name: &'static str, value: &'static str, only_if: &'static str) -> Field {
    Field { name, value, only_if }
}

const GROUPS: &[Group] = &[
    Group {
        name: "module_entry",
        ty: "ModuleEntry",
        fields: &[
            field("size", "sizeof(zend_module_entry)"),
            field("zend_api", "offsetof(zend_module_entry, zend_api)"),
            field("zend_debug", "offsetof(zend_module_entry, zend_debug)"),
            field("zts", "offsetof(zend_module_entry, zts)"),
            field("name", "offsetof(zend_module_entry, name)"),
            field("version", "offsetof(zend_module_entry, version)"),
            field("module_started", "offsetof(zend_module_entry, module_started)"),
        ],
    },
    Group {
        name: "hash_table",
        ty: "HashTable",
        fields: &[
            field("ar_data", "offsetof(HashTable, arData)"),
            field("n_num_used", "offsetof(HashTable, nNumUsed)"),
            field("n_num_of_elements", "offsetof(HashTable, nNumOfElements)"),
            field("bucket_size", "sizeof(Bucket)"),
            field("bucket_ptr", "offsetof(Bucket, val) + offsetof(zval, value)"),
        ],
    },
    Group {
        name: "executor_globals",
        ty: "ExecutorGlobals",
        fields: &[
            field("included_files", "offsetof(zend_executor_globals, included_files)"),
            field("vm_stack_end", "offsetof(zend_executor_globals, vm_stack_end)"),
            field("vm_stack", "offsetof(zend_executor_globals, vm_stack)"),
            field("current_execute_data", "offsetof(zend_executor_globals, current_execute_data)"),
            field("opline_before_exception", "offsetof(zend_executor_globals, opline_before_exception)"),
            field("exception_op", "offsetof(zend_executor_globals, exception_op)"),
            field("exception_op_len", "sizeof(((zend_executor_globals *) 0)->exception_op)"),
            field("active_fiber", "offsetof(zend_executor_globals, active_fiber)"),
        ],
    },
    Group {
        name: "compiler_globals",
        ty: "CompilerGlobals",
        fields: &[field("function_table", "offsetof(zend_compiler_globals, function_table)")],
    },
    Group {
        name: "sapi_globals",
        ty: "SapiGlobals",
        fields: &[
            field("server_context", "offsetof(sapi_globals_struct, server_context)"),
            field("request_method", "offsetof(sapi_globals_struct, request_info.request_method)"),
            field("query_string", "offsetof(sapi_globals_struct, request_info.query_string)"),
            field("path_translated", "offsetof(sapi_globals_struct, request_info.path_translated)"),
            field("request_uri", "offsetof(sapi_globals_struct, request_info.request_uri)"),
            field("sapi_started", "offsetof(sapi_globals_struct, sapi_started)"),
            field("global_request_time", "offsetof(sapi_globals_struct, global_request_time)"),
        ],
    },
    Group {
        name: "sapi_module",
        ty: "SapiModule",
        fields: &[field("name", "offsetof(sapi_module_struct, name)")],
    },
    Group {
        name: "execute_data",
        ty: "ExecuteData",
        fields: &[
            field("size", "sizeof(zend_execute_data)"),
            field("opline", "offsetof(zend_execute_data, opline)"),
            field("return_value", "offsetof(zend_execute_data, return_value)"),
            field("func", "offsetof(zend_execute_data, func)"),
            field("this", "offsetof(zend_execute_data, This)"),
            field("prev_execute_data", "offsetof(zend_execute_data, prev_execute_data)"),
            field("zend_call_top", "ZEND_CALL_TOP"),
        ],
    },
    Group {
        name: "function",
        ty: "Function",
        fields: &[
            field("kind", "offsetof(zend_function, type)"),
            field("fn_flags", "offsetof(zend_function, common.fn_flags)"),
            field("function_name", "offsetof(zend_function, common.function_name)"),
            field("scope", "offsetof(zend_function, common.scope)"),
            field("last", "offsetof(zend_op_array, last)"),
            field("opcodes", "offsetof(zend_op_array, opcodes)"),
            field("filename", "offsetof(zend_op_array, filename)"),
            field("line_start", "offsetof(zend_op_array, line_start)"),
            field("line_end", "offsetof(zend_op_array, line_end)"),
            field("zend_internal_function", "ZEND_INTERNAL_FUNCTION"),
            field("zend_user_function", "ZEND_USER_FUNCTION"),
            field("zend_eval_code", "ZEND_EVAL_CODE"),
            field("zend_acc_closure", "ZEND_ACC_CLOSURE"),
            field("zend_acc_fake_closure", "ZEND_ACC_FAKE_CLOSURE"),
            field("zend_acc_call_via_trampoline", "ZEND_ACC_CALL_VIA_TRAMPOLINE"),
        ],
    },
    Group {
        name: "op",
        ty: "Op",
        fields: &[
            field("size", "sizeof(zend_op)"),
            field("op1_var", "offsetof(zend_op, op1.var)"),
            field("op2_constant", "offsetof(zend_op, op2.constant)"),
            field("op2_var", "offsetof(zend_op, op2.var)"),
            field("result_var", "offsetof(zend_op, result.var)"),
            field("extended_value", "offsetof(zend_op, extended_value)"),
            field("lineno", "offsetof(zend_op, lineno)"),
            field("opcode", "offsetof(zend_op, opcode)"),
            field("op1_type", "offsetof(zend_op, op1_type)"),
            field("op2_type", "offsetof(zend_op, op2_type)"),
            field("is_const", "IS_CONST"),
            field("zend_init_fcall", "ZEND_INIT_FCALL"),
            field("zend_init_fcall_by_name", "ZEND_INIT_FCALL_BY_NAME"),
            field("zend_init_ns_fcall_by_name", "ZEND_INIT_NS_FCALL_BY_NAME"),
            field("zend_init_method_call", "ZEND_INIT_METHOD_CALL"),
            field("zend_init_static_method_call", "ZEND_INIT_STATIC_METHOD_CALL"),
            field("zend_init_user_call", "ZEND_INIT_USER_CALL"),
            field("zend_init_dynamic_call", "ZEND_INIT_DYNAMIC_CALL"),
            optional(
                "zend_init_parent_property_hook_call",
                "ZEND_INIT_PARENT_PROPERTY_HOOK_CALL",
                "ZEND_INIT_PARENT_PROPERTY_HOOK_CALL",
            ),
            field("zend_new", "ZEND_NEW"),
            field("zend_callable_convert", "ZEND_CALLABLE_CONVERT"),
            field("zend_do_fcall", "ZEND_DO_FCALL"),
            field("zend_do_icall", "ZEND_DO_ICALL"),
            field("zend_do_ucall", "ZEND_DO_UCALL"),
            field("zend_do_fcall_by_name", "ZEND_DO_FCALL_BY_NAME"),
            field("zend_call_trampoline", "ZEND_CALL_TRAMPOLINE"),
            field("zend_check_undef_args", "ZEND_CHECK_UNDEF_ARGS"),
            field("zend_fetch_obj_r", "ZEND_FETCH_OBJ_R"),
            field("zend_fetch_obj_func_arg", "ZEND_FETCH_OBJ_FUNC_ARG"),
            field("zend_user_opcode", "ZEND_USER_OPCODE"),
            field("zend_include_or_eval", "ZEND_INCLUDE_OR_EVAL"),
            optional("zend_frameless_icall_0", "ZEND_FRAMELESS_ICALL_0", "ZEND_FRAMELESS_ICALL_0"),
            field("zend_eval", "ZEND_EVAL"),
            field("zend_include", "ZEND_INCLUDE"),
            field("zend_include_once", "ZEND_INCLUDE_ONCE"),
            field("zend_require", "ZEND_REQUIRE"),
            field("zend_require_once", "ZEND_REQUIRE_ONCE"),
        ],
    },
    Group {
        name: "class_entry",
        ty: "ClassEntry",
        fields: &[field("name", "offsetof(zend_class_entry, name)")],
    },
    Group {
        name: "string",
        ty: "ZendString",
        fields: &[field("len", "offsetof(zend_string, len)"), field("val", "offsetof(zend_string, val)")],
    },
    Group {
        name: "generator",
        ty: "Generator",
        fields: &[
            field("execute_data", "offsetof(zend_generator, execute_data)"),
            field("node_parent", "offsetof(zend_generator, node.parent)"),
            field("execute_fake", "offsetof(zend_generator, execute_fake)"),
        ],
    },
    Group {
        name: "fiber",
        ty: "Fiber",
        fields: &[
            field("flags", "offsetof(zend_fiber, flags)"),
            field("stack_bottom", "offsetof(zend_fiber, stack_bottom)"),
            field("zend_fiber_flag_destroyed", "ZEND_FIBER_FLAG_DESTROYED"),
        ],
    },
    Group {
        name: "zval",
        ty: "Zval",
        fields: &[
            field("size", "sizeof(zval)"),
            field("type_info", "offsetof(zval, u1.type_info)"),
            field("is_undef", "IS_UNDEF"),
            field("is_null", "IS_NULL"),
            field("is_string", "IS_STRING"),
            field("is_object", "IS_OBJECT"),
        ],
    },
];

/// Writes the tables of all versions whose headers are here.
pub(crate) fn write() -> Result<()> {
    let mut written = 0;
    for headers in HEADERS {
        let (major, minor) = headers.version;
        match headers.includes() {
            Ok(includes) => {
                fs::write(table_path(headers.version), table(headers.version, &includes)?)?;
                written += 1;
            }
            Err(reason) => eprintln!("skipped {major}.{minor}: {reason:#}"),
        }
    }
    ensure!(written > 0, "no PHP headers found");
    Ok(())
}

fn table_path((major, minor): (u8, u8)) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../crates/zend/src/offsets/v{major}_{minor}.rs"))
}

impl Headers {
    /// Arguments that make the compiler find the headers.
    fn includes(&self) -> Result<Vec<String>> {
        match self.place {
            Place::Config(program) => {
                let output = Command::new(program).arg("--includes").output().context(program)?;
                ensure!(output.status.success(), "{program} --includes failed");
                Ok(String::from_utf8(output.stdout)?.split_whitespace().map(str::to_owned).collect())
            }
            Place::Root(api) => {
                let cache = match (std::env::var_os("SLIP_CACHE"), std::env::var_os("HOME")) {
                    (Some(cache), _) => PathBuf::from(cache),
                    (None, Some(home)) => Path::new(&home).join(".cache/slipstream"),
                    (None, None) => bail!("neither SLIP_CACHE nor HOME is set"),
                };
                let base = cache.join("roots/php/usr/include/php").join(api);
                ensure!(base.is_dir(), "{} does not exist: run fixtures/roots/roots php", base.display());
                Ok(["", "/main", "/TSRM", "/Zend", "/ext"]
                    .map(|folder| format!("-I{}{folder}", base.display()))
                    .to_vec())
            }
        }
    }
}

/// The text of one table.
fn table((major, minor): (u8, u8), includes: &[String]) -> Result<String> {
    let printed = run(&program(), includes)?;
    let mut lines = printed.lines();
    let mut next = || lines.next().context("the C program printed too little");
    let build = next()?;
    ensure!(build == "nts release", "these are headers of a build that we do not read: {build}");
    let api: u32 = next()?.parse()?;
    let mut out = String::new();
    let mut types: Vec<&str> = GROUPS.iter().map(|group| group.ty).chain(["Offsets"]).collect();
    types.sort_unstable();
    writeln!(
        out,
        "//! Generated by `cargo xtask zend-offsets` from the headers of PHP {major}.{minor} (module API {api}). Do not edit.\n"
    )?;
    write!(out, "use super::{{\n   ")?;
    let mut column = 3;
    for ty in types {
        // As rustfmt breaks the line.
        if column + ty.len() + 2 > 110 {
            write!(out, "\n   ")?;
            column = 3;
        }
        write!(out, " {ty},")?;
        column += ty.len() + 2;
    }
    writeln!(out, "\n}};\n\npub(super) const TABLE: Offsets = Offsets {{")?;
    writeln!(out, "    version: ({major}, {minor}),\n    zend_module_api_no: {},", grouped(api))?;
    for group in GROUPS {
        let mut fields = Vec::new();
        for field in group.fields {
            let value = next()?;
            let value = match (field.only_if, value) {
                ("", number) => grouped(number.parse()?),
                (_, "none") => "None".to_owned(),
                (_, number) => format!("Some({})", grouped(number.parse()?)),
            };
            fields.push(format!("{}: {value}", field.name));
        }
        let line = format!("    {}: {} {{ {} }},", group.name, group.ty, fields.join(", "));
        if line.len() <= 110 {
            writeln!(out, "{line}")?;
        } else {
            writeln!(out, "    {}: {} {{", group.name, group.ty)?;
            for field in fields {
                writeln!(out, "        {field},")?;
            }
            writeln!(out, "    }},")?;
        }
    }
    writeln!(out, "}};")?;
    Ok(out)
}

/// A number as clippy wants it written.
fn grouped(number: u32) -> String {
    let digits = number.to_string();
    if digits.len() < 6 {
        return digits;
    }
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push('_');
        }
        out.push(digit);
    }
    out
}

/// The C program that prints one number per line.
fn program() -> String {
    let mut text = String::from(
        "#include <stddef.h>\n#include <stdio.h>\n#include \"php.h\"\n#include \"SAPI.h\"\n#include \"zend_generators.h\"\n#include \"zend_fibers.h\"\n\
         int main(void) {\n\
         #ifdef ZTS\nputs(\"zts\");\n#elif ZEND_DEBUG\nputs(\"debug\");\n#else\nputs(\"nts release\");\n#endif\n\
         printf(\"%u\\n\", (unsigned) ZEND_MODULE_API_NO);\n",
    );
    for field in GROUPS.iter().flat_map(|group| group.fields) {
        let print = format!("printf(\"%u\\n\", (unsigned) ({}));\n", field.value);
        if field.only_if.is_empty() {
            text.push_str(&print);
        } else {
            text.push_str(&format!("#ifdef {}\n{print}#else\nputs(\"none\");\n#endif\n", field.only_if));
        }
    }
    text.push_str("return 0;\n}\n");
    text
}

fn run(program: &str, includes: &[String]) -> Result<String> {
    let folder = std::env::temp_dir().join(format!(
        "slip-xtask.{}.{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    fs::create_dir_all(&folder)?;
    let result = compile_and_run(&folder, program, includes);
    fs::remove_dir_all(&folder)?;
    result
}

fn compile_and_run(folder: &Path, program: &str, includes: &[String]) -> Result<String> {
    let (source, binary) = (folder.join("offsets.c"), folder.join("offsets"));
    fs::write(&source, program)?;
    // Inline functions of the headers name functions of PHP; without optimisation they would be linked.
    let output = Command::new("cc")
        .args([
            "-w",
            "-O1",
            "-ffunction-sections",
            "-Wl,--gc-sections",
            "-Wl,--unresolved-symbols=ignore-all",
        ])
        .args(includes)
        .arg(&source)
        .arg("-o")
        .arg(&binary)
        .output()
        .context("no C compiler: cc")?;
    ensure!(output.status.success(), "cc failed:\n{}", String::from_utf8_lossy(&output.stderr));
    let output = Command::new(&binary).output()?;
    ensure!(output.status.success(), "the C program failed");
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn committed_tables_are_what_the_headers_say() {
        for headers in HEADERS {
            let (major, minor) = headers.version;
            let committed = fs::read_to_string(table_path(headers.version)).unwrap();
            assert!(committed.lines().next().unwrap().contains("cargo xtask zend-offsets"));
            match headers.includes() {
                Ok(includes) => assert_eq!(committed, table(headers.version, &includes).unwrap()),
                Err(reason) => {
                    slip_testkit::skip(&format!("headers of PHP {major}.{minor}"), &format!("{reason:#}"));
                }
            }
        }
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(grouped(15), "15");
        assert_eq!(grouped(20_240_924), "20_240_924");
    }
}
