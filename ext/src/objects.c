#include "objects.h"

#include "zend_enum.h"
#include "zend_exceptions.h"

#include "keep.h"
#include "path.h"
#include "refuse.h"

/* Internal classes, and with them what userland derives from them, whose objects live in the request heap alone: read for
 * each in PHP 8.2 and 8.4's sources. Exceptions are a family of their own. All others are refused. */
static const char *const allowed[] = {
	"ArrayIterator", "ArrayObject", "AppendIterator", "AllowDynamicProperties", "Attribute", "CachingIterator",
	"CallbackFilterIterator", "Closure", "DateInterval", "DatePeriod", "DateTime", "DateTimeImmutable", "DateTimeZone",
	"Deprecated", "EmptyIterator", "Generator", "InfiniteIterator", "InternalIterator", "IteratorIterator", "LimitIterator",
	"MultipleIterator", "NoRewindIterator", "Override", "ParentIterator", "Random\\Engine\\Secure", "Random\\Randomizer",
	"RecursiveArrayIterator", "RecursiveCachingIterator", "RecursiveCallbackFilterIterator", "RecursiveIteratorIterator",
	"RecursiveTreeIterator", "ReflectionAttribute", "ReflectionClass", "ReflectionClassConstant", "ReflectionEnum",
	"ReflectionEnumBackedCase", "ReflectionEnumUnitCase", "ReflectionException", "ReflectionFunction",
	"ReflectionIntersectionType", "ReflectionMethod", "ReflectionNamedType", "ReflectionObject", "ReflectionParameter",
	"ReflectionProperty", "ReflectionUnionType", "ReturnTypeWillChange", "SensitiveParameter", "SensitiveParameterValue",
	"Slipstream\\SnapshotException", "SplDoublyLinkedList", "SplFileInfo", "SplFixedArray", "SplMaxHeap", "SplMinHeap",
	"SplObjectStorage", "SplPriorityQueue", "SplQueue", "SplStack", "WeakMap", "WeakReference", "php_user_filter", "stdClass",
	"__PHP_Incomplete_Class", "__iterator_wrapper",
	/* Abstract: only derived classes have objects. */
	"FilterIterator", "RecursiveFilterIterator", "SplHeap",
};

static const char *const why[][2] = {
	{"Fiber", "a fiber has a stack outside of the heap"},
	{"Random\\Engine\\Mt19937", "every request would draw the same numbers; use Random\\Engine\\Secure, or make it after restore_state()"},
	{"Random\\Engine\\PcgOneseq128XslRr64", "every request would draw the same numbers; use Random\\Engine\\Secure, or make it after restore_state()"},
	{"Random\\Engine\\Xoshiro256StarStar", "every request would draw the same numbers; use Random\\Engine\\Secure, or make it after restore_state()"},
};

static const zend_class_entry *internal_base(const zend_class_entry *class)
{
	while (class && class->type == ZEND_USER_CLASS) {
		class = class->parent;
	}
	return class;
}

static bool is_allowed(const zend_object *object)
{
	const zend_class_entry *base = internal_base(object->ce);

	if (!base || instanceof_function(base, zend_ce_throwable)) {
		return true;
	}
	if (base->ce_flags & ZEND_ACC_ENUM) {
		return true;
	}
	/* phpredis: its stream is looked at as any other one. What it queues up is of malloc(), and is found as such. */
	if (slip_keep_is_asked_for() && zend_string_equals_literal(base->name, "Redis")) {
		return true;
	}
	for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++) {
		if (zend_string_equals_cstr(base->name, allowed[i], strlen(allowed[i]))) {
			return true;
		}
	}
	return false;
}

bool slip_objects_check(void)
{
	for (uint32_t i = 1; i < EG(objects_store).top; i++) {
		zend_object *object = EG(objects_store).object_buckets[i];
		if (!IS_OBJ_VALID(object) || is_allowed(object)) {
			continue;
		}
		const zend_class_entry *base = internal_base(object->ce);
		const char *reason = "it holds native memory that cannot be saved";
		for (size_t j = 0; j < sizeof why / sizeof *why; j++) {
			if (zend_string_equals_cstr(base->name, why[j][0], strlen(why[j][0]))) {
				reason = why[j][1];
			}
		}
		zend_string *path = slip_path_to(object);
		slip_refuse("object", "object #%u of class %s cannot be part of a snapshot: %s; it is reached by %s", object->handle,
			ZSTR_VAL(object->ce->name), reason, ZSTR_VAL(path));
		zend_string_release(path);
		return false;
	}
	return true;
}

uint32_t slip_objects_hide(slip_image_t *image)
{
	const zend_objects_store *store = &image->state->objects;
	zend_object **buckets = slip_image_at(image, store->object_buckets);
	uint32_t count = 0;

	for (uint32_t i = 1; i < store->top; i++) {
		zend_object *object = store->object_buckets[i];
		if (!IS_OBJ_VALID(object)) {
			continue;
		}
		count++;
		if (object->handlers->dtor_obj != zend_objects_destroy_object || object->ce->destructor) {
			continue;
		}
		/* Nothing is to be called for it. The two loops over all objects at the end of a request would set these flags in
		 * each of them, and dirty its page. Within the request nothing looks at them: it is freed as any other. */
		zend_object *saved = slip_image_at(image, object);
		GC_ADD_FLAGS(saved, IS_OBJ_DESTRUCTOR_CALLED);
#if !ZEND_DEBUG
		buckets[i] = SET_OBJ_INVALID(object);
#else
		(void) buckets;
#endif
	}
	return count;
}
