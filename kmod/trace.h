/* SPDX-License-Identifier: GPL-2.0-only */
/* Tracepoints at the steps that matter; no byte of the pool is in them. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM kvpool

#if !defined(KVPOOL_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define KVPOOL_TRACE_H

#include <linux/tracepoint.h>

TRACE_EVENT(kvpool_claim,
	TP_PROTO(u32 host, u64 incarnation, int result),
	TP_ARGS(host, incarnation, result),
	TP_STRUCT__entry(
		__field(u32, host)
		__field(u64, incarnation)
		__field(int, result)
	),
	TP_fast_assign(
		__entry->host = host;
		__entry->incarnation = incarnation;
		__entry->result = result;
	),
	TP_printk("host=%u incarnation=%#llx result=%d", __entry->host, __entry->incarnation,
		  __entry->result)
);

DECLARE_EVENT_CLASS(kvpool_member,
	TP_PROTO(u32 part, u32 slot, u64 incarnation),
	TP_ARGS(part, slot, incarnation),
	TP_STRUCT__entry(
		__field(u32, part)
		__field(u32, slot)
		__field(u64, incarnation)
	),
	TP_fast_assign(
		__entry->part = part;
		__entry->slot = slot;
		__entry->incarnation = incarnation;
	),
	TP_printk("partition=%u slot=%u incarnation=%#llx", __entry->part, __entry->slot,
		  __entry->incarnation)
);

DEFINE_EVENT(kvpool_member, kvpool_join,
	TP_PROTO(u32 part, u32 slot, u64 incarnation), TP_ARGS(part, slot, incarnation));
DEFINE_EVENT(kvpool_member, kvpool_revoke,
	TP_PROTO(u32 part, u32 slot, u64 incarnation), TP_ARGS(part, slot, incarnation));
DEFINE_EVENT(kvpool_member, kvpool_lease_over,
	TP_PROTO(u32 part, u32 slot, u64 incarnation), TP_ARGS(part, slot, incarnation));
DEFINE_EVENT(kvpool_member, kvpool_quiet,
	TP_PROTO(u32 part, u32 slot, u64 incarnation), TP_ARGS(part, slot, incarnation));

TRACE_EVENT(kvpool_map,
	TP_PROTO(u32 part, u32 slice, u64 offset, unsigned int order, bool pool),
	TP_ARGS(part, slice, offset, order, pool),
	TP_STRUCT__entry(
		__field(u32, part)
		__field(u32, slice)
		__field(u64, offset)
		__field(unsigned int, order)
		__field(bool, pool)
	),
	TP_fast_assign(
		__entry->part = part;
		__entry->slice = slice;
		__entry->offset = offset;
		__entry->order = order;
		__entry->pool = pool;
	),
	TP_printk("partition=%u slice=%u offset=%#llx order=%u pool=%d", __entry->part,
		  __entry->slice, __entry->offset, __entry->order, __entry->pool)
);

DECLARE_EVENT_CLASS(kvpool_partition,
	TP_PROTO(u32 part, int result),
	TP_ARGS(part, result),
	TP_STRUCT__entry(
		__field(u32, part)
		__field(int, result)
	),
	TP_fast_assign(
		__entry->part = part;
		__entry->result = result;
	),
	TP_printk("partition=%u result=%d", __entry->part, __entry->result)
);

DEFINE_EVENT(kvpool_partition, kvpool_attach, TP_PROTO(u32 part, int result),
	TP_ARGS(part, result));
DEFINE_EVENT(kvpool_partition, kvpool_drain, TP_PROTO(u32 part, int result),
	TP_ARGS(part, result));
DEFINE_EVENT(kvpool_partition, kvpool_detach, TP_PROTO(u32 part, int result),
	TP_ARGS(part, result));

DECLARE_EVENT_CLASS(kvpool_slice,
	TP_PROTO(u32 part, u32 slice),
	TP_ARGS(part, slice),
	TP_STRUCT__entry(
		__field(u32, part)
		__field(u32, slice)
	),
	TP_fast_assign(
		__entry->part = part;
		__entry->slice = slice;
	),
	TP_printk("partition=%u slice=%u", __entry->part, __entry->slice)
);

DEFINE_EVENT(kvpool_slice, kvpool_slice_drain, TP_PROTO(u32 part, u32 slice),
	TP_ARGS(part, slice));
DEFINE_EVENT(kvpool_slice, kvpool_slice_detach, TP_PROTO(u32 part, u32 slice),
	TP_ARGS(part, slice));

DECLARE_EVENT_CLASS(kvpool_place,
	TP_PROTO(u32 device, u64 offset, u64 bytes, int result),
	TP_ARGS(device, offset, bytes, result),
	TP_STRUCT__entry(
		__field(u32, device)
		__field(u64, offset)
		__field(u64, bytes)
		__field(int, result)
	),
	TP_fast_assign(
		__entry->device = device;
		__entry->offset = offset;
		__entry->bytes = bytes;
		__entry->result = result;
	),
	TP_printk("device=%u offset=%#llx bytes=%#llx result=%d", __entry->device,
		  __entry->offset, __entry->bytes, __entry->result)
);

DEFINE_EVENT(kvpool_place, kvpool_scrub,
	TP_PROTO(u32 device, u64 offset, u64 bytes, int result),
	TP_ARGS(device, offset, bytes, result));
DEFINE_EVENT(kvpool_place, kvpool_poison,
	TP_PROTO(u32 device, u64 offset, u64 bytes, int result),
	TP_ARGS(device, offset, bytes, result));

TRACE_EVENT(kvpool_fence,
	TP_PROTO(u32 host, u64 incarnation, int result),
	TP_ARGS(host, incarnation, result),
	TP_STRUCT__entry(
		__field(u32, host)
		__field(u64, incarnation)
		__field(int, result)
	),
	TP_fast_assign(
		__entry->host = host;
		__entry->incarnation = incarnation;
		__entry->result = result;
	),
	TP_printk("host=%u incarnation=%#llx result=%d", __entry->host, __entry->incarnation,
		  __entry->result)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
