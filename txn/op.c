/*
 * txn/op.c - names and sizes of operation records.
 */
#include "txn/op.h"

const char *op_type_name(enum op_type type)
{
    switch (type) {
#define OP(name, code, text)                                                                                           \
    case OP_##name:                                                                                                    \
        return #name;
#include "txn/op.def"
#undef OP
    }
    return "UNKNOWN";
}

uint64_t op_record_size(const struct op_record *op)
{
    return sizeof *op + op->name.size + op->name2.size + op->data.size;
}
