#include "path.h"

#include "zend_closures.h"
#include "zend_constants.h"
#include "zend_generators.h"

/* Values that are looked at before we give up. A refused snapshot may take its time, not the worker's memory. */
#define MAX_STEPS 2000000

/* One value on the way: how it is reached from its parent. */
typedef struct {
	int64_t parent;
	const zval *value;
	zend_string *text; /* "$app", "->db", "['x']" */
} step_t;

typedef struct {
	step_t *steps;
	size_t count, room;
	HashTable seen;
} walk_t;

/* Takes over `text`. */
static void visit(walk_t *walk, int64_t parent, const zval *value, zend_string *text)
{
	const void *target = NULL;

	ZVAL_DEREF(value);
	if (Z_TYPE_P(value) == IS_OBJECT || Z_TYPE_P(value) == IS_RESOURCE) {
		target = Z_COUNTED_P(value);
	} else if (Z_TYPE_P(value) == IS_ARRAY && zend_hash_num_elements(Z_ARRVAL_P(value))) {
		target = Z_ARRVAL_P(value);
	}
	if (!target || walk->count >= MAX_STEPS
			|| !zend_hash_index_add_empty_element(&walk->seen, (zend_ulong) (uintptr_t) target)) {
		zend_string_release(text);
		return;
	}
	if (walk->count == walk->room) {
		walk->room = walk->room ? 2 * walk->room : 256;
		walk->steps = safe_erealloc(walk->steps, walk->room, sizeof *walk->steps, 0);
	}
	walk->steps[walk->count++] = (step_t) {parent, value, text};
}

static void visit_table(walk_t *walk, int64_t parent, HashTable *table, const char *format, const char *number_format)
{
	zend_ulong index;
	zend_string *key;
	zval *value;

	ZEND_HASH_FOREACH_KEY_VAL(table, index, key, value) {
		ZVAL_DEINDIRECT(value);
		visit(walk, parent, value,
			key ? zend_strpprintf(0, format, ZSTR_VAL(key)) : zend_strpprintf(0, number_format, (zend_long) index));
	} ZEND_HASH_FOREACH_END();
}

static void visit_object(walk_t *walk, int64_t parent, zend_object *object)
{
	zend_property_info *info;
	zend_string *name;
	zval *table;
	int count;

	ZEND_HASH_FOREACH_STR_KEY_PTR(&object->ce->properties_info, name, info) {
		if (!(info->flags & ZEND_ACC_STATIC) && info->offset != (uint32_t) -1 && info->offset) {
			visit(walk, parent, OBJ_PROP(object, info->offset), zend_strpprintf(0, "->%s", ZSTR_VAL(name)));
		}
	} ZEND_HASH_FOREACH_END();
	for (zend_class_entry *class = object->ce->parent; class; class = class->parent) {
		ZEND_HASH_FOREACH_STR_KEY_PTR(&class->properties_info, name, info) {
			if (info->flags & ZEND_ACC_PRIVATE && !(info->flags & ZEND_ACC_STATIC) && info->offset) {
				visit(walk, parent, OBJ_PROP(object, info->offset), zend_strpprintf(0, "->%s", ZSTR_VAL(name)));
			}
		} ZEND_HASH_FOREACH_END();
	}
	if (object->properties) {
		visit_table(walk, parent, object->properties, "->%s", "->" ZEND_LONG_FMT);
	}
	if (object->ce == zend_ce_closure) {
		zval self;
		const zend_function *code = zend_get_closure_method_def(object);
		zval *bound = zend_get_closure_this_ptr(&(zval) {.value.obj = object, .u1.type_info = IS_OBJECT_EX});
		if (Z_TYPE_P(bound) == IS_OBJECT) {
			ZVAL_COPY_VALUE(&self, bound);
			visit(walk, parent, bound, zend_strpprintf(0, "{bound $this}"));
		}
		if (code->type == ZEND_USER_FUNCTION && ZEND_MAP_PTR(code->op_array.static_variables_ptr)
				&& ZEND_MAP_PTR_GET(code->op_array.static_variables_ptr)) {
			visit_table(walk, parent, ZEND_MAP_PTR_GET(code->op_array.static_variables_ptr), "{use $%s}", "{use " ZEND_LONG_FMT "}");
		}
		return;
	}
	/* What a class keeps in a way of its own: generators, SplObjectStorage, WeakMap. */
	if (object->handlers->get_gc && object->handlers->get_gc != zend_std_get_gc) {
		HashTable *more = object->handlers->get_gc(object, &table, &count);
		for (int i = 0; i < count; i++) {
			visit(walk, parent, table + i, zend_strpprintf(0, "{%s}", ZSTR_VAL(object->ce->name)));
		}
		if (more && more != object->properties) {
			visit_table(walk, parent, more, "->%s", "{" ZEND_LONG_FMT "}");
		}
	}
}

static void visit_statics(walk_t *walk, const zend_function *code, const char *class)
{
	if (code->type != ZEND_USER_FUNCTION || !ZEND_MAP_PTR(code->op_array.static_variables_ptr)) {
		return;
	}
	HashTable *statics = ZEND_MAP_PTR_GET(code->op_array.static_variables_ptr);
	if (statics) {
		zend_string *format = zend_strpprintf(0, "%s%s%s() static $%%s", class, *class ? "::" : "",
			code->common.function_name ? ZSTR_VAL(code->common.function_name) : "{main}");
		visit_table(walk, -1, statics, ZSTR_VAL(format), "%d");
		zend_string_release(format);
	}
}

static void visit_roots(walk_t *walk)
{
	zend_class_entry *class;
	zend_function *code;
	zend_string *name;
	zval *value;

	visit_table(walk, -1, &EG(symbol_table), "$%s", "$" ZEND_LONG_FMT);
	ZEND_HASH_FOREACH_PTR(EG(class_table), class) {
		if (class->type != ZEND_USER_CLASS) {
			continue;
		}
		if (class->default_static_members_count && CE_STATIC_MEMBERS(class)) {
			zend_property_info *info;
			ZEND_HASH_FOREACH_STR_KEY_PTR(&class->properties_info, name, info) {
				if (info->flags & ZEND_ACC_STATIC) {
					value = CE_STATIC_MEMBERS(class) + info->offset;
					ZVAL_DEINDIRECT(value);
					visit(walk, -1, value, zend_strpprintf(0, "%s::$%s", ZSTR_VAL(class->name), ZSTR_VAL(name)));
				}
			} ZEND_HASH_FOREACH_END();
		}
		ZEND_HASH_FOREACH_PTR(&class->function_table, code) {
			visit_statics(walk, code, ZSTR_VAL(class->name));
		} ZEND_HASH_FOREACH_END();
	} ZEND_HASH_FOREACH_END();
	ZEND_HASH_FOREACH_PTR(EG(function_table), code) {
		visit_statics(walk, code, "");
	} ZEND_HASH_FOREACH_END();
	zend_constant *constant;
	ZEND_HASH_FOREACH_STR_KEY_PTR(EG(zend_constants), name, constant) {
		visit(walk, -1, &constant->value, zend_string_copy(name));
	} ZEND_HASH_FOREACH_END();
	visit(walk, -1, &EG(user_error_handler), zend_string_init(ZEND_STRL("the error handler"), false));
	visit(walk, -1, &EG(user_exception_handler), zend_string_init(ZEND_STRL("the exception handler"), false));
}

zend_string *slip_path_to(const void *wanted)
{
	walk_t walk = {0};
	zend_string *path = NULL;

	zend_hash_init(&walk.seen, 1024, NULL, NULL, false);
	visit_roots(&walk);
	for (size_t i = 0; i < walk.count && !path; i++) {
		const zval *value = walk.steps[i].value;
		if (Z_TYPE_P(value) != IS_ARRAY && Z_COUNTED_P(value) == wanted) {
			path = zend_empty_string;
			for (int64_t at = i; at >= 0; at = walk.steps[at].parent) {
				zend_string *longer = zend_string_concat2(ZSTR_VAL(walk.steps[at].text), ZSTR_LEN(walk.steps[at].text),
					ZSTR_VAL(path), ZSTR_LEN(path));
				zend_string_release(path);
				path = longer;
			}
		} else if (Z_TYPE_P(value) == IS_OBJECT) {
			visit_object(&walk, i, Z_OBJ_P(value));
		} else if (Z_TYPE_P(value) == IS_ARRAY) {
			visit_table(&walk, i, Z_ARRVAL_P(value), "['%s']", "[" ZEND_LONG_FMT "]");
		}
	}
	for (size_t i = 0; i < walk.count; i++) {
		zend_string_release(walk.steps[i].text);
	}
	if (walk.steps) {
		efree(walk.steps);
	}
	zend_hash_destroy(&walk.seen);
	return path ? path : zend_string_init(ZEND_STRL("no variable that can be followed"), false);
}
