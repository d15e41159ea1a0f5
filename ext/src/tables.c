#include "tables.h"

#include "zend_constants.h"

/* New entries for which a table has room before it must grow: growing copies all of it. */
#define HEADROOM 512

static struct {
	HashTable classes, functions, constants;
	uint32_t constants_count;
	bool out;
} engine;

HashTable slip_table_copy(const HashTable *source)
{
	HashTable copy = *source;
	void *data = emalloc(HT_SIZE(source));

	/* All of the engine's tables are hashes, so that buckets and index are one block. */
	memcpy(data, HT_GET_DATA_ADDR(source), HT_SIZE(source));
	HT_SET_DATA_ADDR(&copy, data);
	GC_TYPE_INFO(&copy) &= ~((uint32_t) GC_PERSISTENT << GC_FLAGS_SHIFT);
	if (copy.nNumUsed + HEADROOM > copy.nTableSize) {
		zend_hash_extend(&copy, copy.nNumUsed + HEADROOM, false);
	}
	return copy;
}

bool slip_table_covers(const HashTable *image, const HashTable *now, uint32_t first, bool constants)
{
	for (uint32_t i = first; i < now->nNumUsed; i++) {
		const Bucket *bucket = now->arData + i;
		/* A key with NUL in it is that of a class which the script may declare when it gets there: none yet. */
		if (Z_TYPE(bucket->val) == IS_UNDEF || (bucket->key && memchr(ZSTR_VAL(bucket->key), 0, ZSTR_LEN(bucket->key)))) {
			continue;
		}
		zval *other = bucket->key ? zend_hash_find(image, bucket->key) : NULL;
		if (!other) {
			return false;
		}
		if (Z_PTR_P(other) != Z_PTR(bucket->val)) {
			zend_constant *mine = Z_PTR(bucket->val), *theirs = Z_PTR_P(other);
			if (!constants || !zend_is_identical(&mine->value, &theirs->value)) {
				return false;
			}
		}
	}
	return true;
}

void slip_tables_put(const HashTable *classes, const HashTable *functions, const HashTable *constants)
{
	engine.classes = *EG(class_table);
	engine.functions = *EG(function_table);
	engine.constants = *EG(zend_constants);
	engine.constants_count = EG(persistent_constants_count);
	engine.out = true;
	*EG(class_table) = *classes;
	*EG(function_table) = *functions;
	*EG(zend_constants) = *constants;
	/* The end of the request discards the constants behind this one before it can be told to leave ours alone. Classes and
	 * functions are taken back before, and their counts must stay: the optimizer takes what lies below for persistent. */
	EG(persistent_constants_count) = constants->nNumUsed;
}

void slip_tables_take_back(void)
{
	if (engine.out) {
		*EG(class_table) = engine.classes;
		*EG(function_table) = engine.functions;
		*EG(zend_constants) = engine.constants;
		engine.out = false;
		/* What the request had declared before it was restored. */
		zend_hash_discard(EG(zend_constants), engine.constants_count);
	}
}
