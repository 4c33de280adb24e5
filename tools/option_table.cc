// SPDX-License-Identifier: Apache-2.0
// The table of commands and options (options.hpp). Man pages, help and completions follow it; a
// test compares them.
#include "commands.hpp"
#include "options.hpp"

namespace kvpool::tools {

namespace {

constexpr OptionSpec kJson{"--json", Kind::kFlag, "", "", "Print one JSON object instead of text."};
constexpr OptionSpec kProgress{"--progress",
                               Kind::kChoice,
                               "FORM",
                               "auto",
                               "Show progress on stderr: auto only on a terminal.",
                               "auto|json|none"};
constexpr OptionSpec kStore{"ADDRESS", Kind::kAddress, "ADDRESS", "$KVPOOL",
                            "Address of the store."};
constexpr OptionSpec kPool{"--pool", Kind::kAddress, "ADDRESS", "$KVPOOL", "Address of the store."};
constexpr OptionSpec kNs{"--ns", Kind::kText, "NAME", "default", "Name of the namespace.", "",
                         0,      1,           16};
constexpr OptionSpec kModel{"--model",
                            Kind::kText,
                            "TEXT",
                            "blob",
                            "Model and revision that the namespace was created with.",
                            "",
                            0,
                            1};
constexpr OptionSpec kDtype{"--dtype",
                            Kind::kText,
                            "TYPE",
                            "u8",
                            "Element type that the namespace was created with.",
                            "",
                            0,
                            1};
constexpr OptionSpec kHex{"--hex", Kind::kFlag, "", "",
                          "KEY is the 64 hexadecimal digits of a block's key, as ls prints it."};
constexpr OptionSpec kKey{"KEY", Kind::kText, "KEY", "", "Key of the block: any 1 to 256 bytes.",
                          "",    kRequired,   1,     256};
constexpr OptionSpec kDryRun{"--dry-run", Kind::kFlag, "", "",
                             "Say what would be done, and change nothing."};
constexpr OptionSpec kTimeout{"--timeout", Kind::kReal, "SECONDS", "5", "Give up after this time."};

constexpr OptionSpec kFormat[] = {
    {"ADDRESS", Kind::kAddress, "ADDRESS", "",
     "Address of the store; mem: and new files need size=, here or as --size.", "", kRequired},
    {"--size", Kind::kBytes, "BYTES", "as the address says",
     "Size of the pool over all its devices.", "", 0, 1, kPoolBytesMax},
    {"--devices", Kind::kCount, "N", "as the address says", "Number of devices of a mem: pool.", "",
     0, 1, 16},
    {"--block-bytes", Kind::kBytes, "BYTES", "16KiB to 1MiB, by the pool's size",
     "Smallest block expected; sizes the index.", "", 0, 4096, 1u << 30},
    {"--index-growth", Kind::kCount, "N", "1, and 4 from 1TiB on",
     "Room for an index so many times as large; the owner makes use of it when the index is "
     "outgrown.",
     "", 0, 1, 64},
    {"--max-size", Kind::kBytes, "BYTES", "four times the size",
     "How large kvpool grow may make the pool: room in the extent map, up to 64 times the size.",
     "", 0, 1, kPoolBytesMax},
    {"--hosts", Kind::kCount, "N", "2 to 16, by the pool's size", "Hosts that may attach.", "", 0,
     1, 16},
    {"--members", Kind::kCount, "N", "8 to 16, by the pool's size",
     "Members (attached processes) of one host, at most 16; of all hosts at most 254.", "", 0, 1,
     16},
    {"--standbys", Kind::kCount, "N", "2", "Slots for the owner and those that stand by.", "", 0, 1,
     16},
    {"--standby-hosts", Kind::kText, "LIST", "any",
     "Host id of each of these slots, or any, separated by commas: who may own the store."},
    {"--width", Kind::kCount, "N", "all", "Devices that one block is spread over at most.", "", 0,
     1, 16},
    {"--namespaces", Kind::kCount, "N", "64 to 1024, by the pool's size",
     "Lines of the namespace table, rounded up to a power of two; two are no namespaces.", "", 0, 1,
     4096},
    {"--lease-ms", Kind::kCount, "MS", "2000", "Lease of a member.", "", 0, 10, 600000},
    {"--grace-us", Kind::kCount, "US", "20000",
     "How long an evicted block stays for running reads.", "", 0, 1, 60000000},
    {"--yes", Kind::kFlag, "", "", "Format over an existing store, whose blocks are lost."},
    {"--force", Kind::kFlag, "", "",
     "With --yes: also over a store that seems alive, is damaged, or has a newer format."},
    kDryRun,
    kJson,
};

constexpr OptionSpec kInfo[] = {kStore, kJson};

constexpr OptionSpec kCheck[] = {
    kStore,
    {"--payload", Kind::kFlag, "", "", "Also prove every published block against its checks."},
    {"--decode", Kind::kText, "LINE", "",
     "Print one line field by field instead: DEVICE:BYTE, or a name such as superblock, claim:0, "
     "member:3, extent:12, entry:77, ns:1, request:MEMBER.LINE, response:MEMBER.STANDBY.LINE, "
     "notice:MEMBER.STANDBY, strip:EXTENT.UNIT, area:STANDBY.WHICH.LINE."},
    kProgress,
    kJson,
};

constexpr OptionSpec kRepair[] = {
    kStore,
    {"--new-life", Kind::kFlag, "", "",
     "Where nothing else mends the damage: say what a new store in its place, with the same sizes "
     "and options, would lose; with --yes make it."},
    {"--yes", Kind::kFlag, "", "", "Repair without asking."},
    {"--force", Kind::kFlag, "", "", "With --new-life: also over a store that is in use."},
    kDryRun,
    kJson,
};

constexpr OptionSpec kHost[] = {
    {"ACTION", Kind::kChoice, "ACTION", "", "What to do.", "fence", kRequired},
    {"ID", Kind::kCount, "ID", "", "Id of the host.", "", kRequired, 0, 15},
    kStore,
    {"--confirmed", Kind::kFlag, "", "", "The host is off and stays off: this is not asked again."},
    kDryRun,
    kJson,
};

constexpr OptionSpec kSetup[] = {
    {"WHAT", Kind::kChoice, "WHAT", "", "What it is about.",
     "claim|release|admin|partition|host|device", kRequired},
    {"VERB", Kind::kChoice, "VERB", "",
     "What to do: with partition create, destroy, grow, shrink or list, with host list or fence, "
     "with device list or watch.",
     "create|destroy|grow|shrink|list|fence|watch"},
    {"NAME", Kind::kText, "NAME", "",
     "Name of the partition, number of the host to fence, or of the device to watch.", "", 0, 1,
     31},
    {"--range", Kind::kText, "START+BYTES", "",
     "claim: physical addresses of a device of the pool, as in 0x100000000+256GiB; once for each "
     "device.",
     "", kMany, 3, 64},
    {"--host", Kind::kCount, "N", "", "claim: number of this host, a different one on each host.",
     "", 0, 0, 63},
    {"--label", Kind::kFlag, "", "",
     "claim: make a new pool of the ranges; whatever stands there is lost."},
    {"--hosts", Kind::kCount, "N", "", "With --label: how many hosts may share the pool.", "", 0, 1,
     64},
    {"--uuid", Kind::kText, "UUID", "as labelled; with --label a new one",
     "claim: identity of the pool that is meant.", "", 0, 32, 36},
    {"--size", Kind::kBytes, "BYTES", "",
     "create: size of the partition; grow: how much more; shrink: how much less. A multiple of the "
     "unit.",
     "", 0, 1, kPoolBytesMax},
    {"--slice", Kind::kBytes, "BYTES", "as long as is contiguous",
     "create, grow: longest slice, a multiple of the unit.", "", 0, 1, kPoolBytesMax},
    {"--slice-id", Kind::kText, "ID", "the newest",
     "shrink: a slice to give back, instead of --size; once for each slice.", "", kMany, 1, 10},
    {"--pci", Kind::kText, "FUNCTION", "",
     "watch: a PCI function (endpoint, port) without which the device is gone, as in 0000:3a:00.0.",
     "", 0, 7, 13},
    {"--type", Kind::kChoice, "TYPE", "wb",
     "create: memory type; a store is made of write-back partitions.", "wb|wc|uc-"},
    {"--ddio", Kind::kChoice, "POLICY", "flush",
     "create: what is asked of ports through which devices write.", "flush|require-nonallocating"},
    {"--force", Kind::kFlag, "", "",
     "claim --label: over a pool that is there already; destroy, shrink: kill what may reach it."},
    {"--yes", Kind::kFlag, "", "", "destroy, shrink: what is in there is lost."},
    {"--confirmed", Kind::kFlag, "", "",
     "fence: the host is off or cut from the pool, and stays so until it starts anew."},
    kDryRun,
    kJson,
};

constexpr OptionSpec kGrow[] = {
    kStore,
    {"--size", Kind::kBytes, "BYTES", "",
     "Size of the pool then, over all its devices: a multiple of 2 MiB on each.", "", kRequired, 1,
     kPoolBytesMax},
    {"--timeout", Kind::kReal, "SECONDS", "5", "Give up when no owner answers for this time."},
    kDryRun,
    kProgress,
    kJson,
};

constexpr OptionSpec kStat[] = {
    kStore,
    {"--watch", Kind::kReal, "SECONDS", "", "Print again every so many seconds until interrupted."},
    {"--count", Kind::kCount, "N", "", "With --watch: stop after N times.", "", 0, 1},
    kJson,
};

constexpr OptionSpec kTop[] = {
    kStore,
    {"--interval", Kind::kReal, "SECONDS", "1", "Time between two pictures."},
    {"--count", Kind::kCount, "N", "", "Stop after N pictures.", "", 0, 1},
    kJson,
};

constexpr OptionSpec kServe[] = {
    kStore,
    {"--seconds", Kind::kReal, "SECONDS", "", "Stop after this time."},
    {"--name", Kind::kText, "NAME", "serve", "Name of this member, shown to people."},
    {"--suspicion", Kind::kReal, "SECONDS", "1, and the store's lease at most",
     "Take over from a living owner whose heartbeat stands still for this time."},
    {"--huge", Kind::kFlag, "", "", "Ask for huge pages and populate all memory now."},
    {"--control-device", Kind::kCount, "N", "",
     "Where the device with the lines of all members is lost: go on from device N, 0 or 1. Files "
     "need no such word."},
    {"--confirmed", Kind::kFlag, "", "",
     "Over dax and dev: no host can read the other one of the two any more."},
    {"--ready-fd", Kind::kCount, "FD", "",
     "Write the line ready to this descriptor once the store is served, by this process or the one "
     "that it stands by for.",
     "", 0, 0, 1u << 20},
    kJson,
};

constexpr OptionSpec kPut[] = {
    kKey,
    {"FILE", Kind::kFile, "FILE", "standard input", "File with the bytes; - is standard input."},
    kPool,
    kNs,
    kModel,
    kDtype,
    {"--parent", Kind::kText, "KEY", "", "Key of the block before it in its chain.", "", 0, 1, 256},
    {"--embedded", Kind::kFlag, "", "", "Serve the store in this process when nobody else does."},
    kTimeout,
    kDryRun,
    kJson,
};

constexpr OptionSpec kGet[] = {
    kKey,   {"FILE", Kind::kFile, "FILE", "standard output", "File to write the bytes to."},
    kPool,  kNs,
    kModel, kDtype,
    kHex,   kTimeout,
    kJson,
};

constexpr OptionSpec kLs[] = {
    kStore,
    {"--ns", Kind::kText, "NAME", "", "Only blocks of this namespace.", "", 0, 1, 16},
    {"--limit", Kind::kCount, "N", "1000", "Print at most N blocks; 0 prints all."},
    {"--all", Kind::kFlag, "", "", "Also blocks that are pending, draining or hidden."},
    kJson,
};

constexpr OptionSpec kRm[] = {
    {"KEY", Kind::kText, "KEY", "", "Keys of the blocks.", "", kRequired | kMany, 1, 256},
    kPool,
    kNs,
    kModel,
    kDtype,
    kHex,
    kTimeout,
    kDryRun,
    kJson,
};

constexpr OptionSpec kNsOptions[] = {
    {"ACTION", Kind::kChoice, "ACTION", "", "What to do.", "list|create|clear|bypass|resume|remove",
     kRequired},
    {"NAME", Kind::kText, "NAME", "", "Name of the namespace, 1 to 16 bytes; not for list.", "", 0,
     1, 16},
    kPool,
    kModel,
    kDtype,
    {"--block-tokens", Kind::kCount, "N", "16", "Tokens of a block.", "", 0, 1, 1u << 20},
    {"--block-bytes", Kind::kBytes, "BYTES", "any", "Payload of a block, a multiple of 64.", "", 0,
     0, 1u << 30},
    {"--quota", Kind::kBytes, "BYTES", "none",
     "Most bytes the namespace may hold; chosen when it is created."},
    {"--weight", Kind::kCount, "N", "10", "Share under pressure; chosen when it is created.", "", 0,
     1, 100},
    {"--verify", Kind::kChoice, "POLICY", "always", "Which reads are proven.", "always|sample|off"},
    {"--embedded", Kind::kFlag, "", "", "Serve the store in this process when nobody else does."},
    {"--yes", Kind::kFlag, "", "", "Clear or remove without asking."},
    kTimeout,
    kDryRun,
    kJson,
};

constexpr OptionSpec kReplay[] = {
    {"FILE", Kind::kFile, "FILE", "a generated workload",
     "Trace to replay: JSON lines of Mooncake, Qwen-Bailian, or with nanosecond strings."},
    {"--members", Kind::kCount, "N", "4", "Member processes that replay it.", "", 0, 1, 64},
    {"--capacity", Kind::kText, "BYTES", "1GiB",
     "Size of the pool, in bytes or as a share of the working set such as 10%; unlimited with "
     "--metadata-only."},
    {"--block-bytes", Kind::kBytes, "BYTES", "256KiB", "Payload of a block, a multiple of 64.", "",
     0, 64, 1u << 30},
    {"--pool", Kind::kAddress, "ADDRESS", "a new one in shared memory",
     "Store to use; it must have been formatted, and is served from here when nobody else does."},
    {"--scratch", Kind::kText, "ADDRESS",
     "mem:", "Where to make a new store when --pool is not given: mem: or file:PATH."},
    {"--metadata-only", Kind::kFlag, "", "", "Move no payload: count hits only."},
    {"--verify", Kind::kChoice, "POLICY", "always", "Checks of the store on reads.", "always|off"},
    {"--max-requests", Kind::kCount, "N", "all", "Replay only the first N requests of the file."},
    {"--repeat", Kind::kCount, "N", "1", "Replay the workload N times.", "", 0, 1, 1000000},
    {"--min-bytes", Kind::kBytes, "BYTES", "0",
     "Repeat until so many payload bytes have been moved, at most as often as --repeat says."},
    {"--skip-bad", Kind::kFlag, "", "", "Count lines of the trace that cannot be read, and go on."},
    {"--seed", Kind::kCount, "N", "1", "Seed of the generated workload."},
    {"--requests", Kind::kCount, "N", "2000", "Requests of the generated workload.", "", 0, 1,
     100000000},
    {"--json-file", Kind::kFile, "FILE", "", "Also write the result as JSON to this file."},
    {"--corrupt", Kind::kFlag, "", "",
     "Flip one byte of a published block on the way: the run must find it and fail."},
    kProgress,
    kJson,
    {"--member", Kind::kCount, "N", "", "This process is member N of a replay.", "", kHidden},
    {"--control-fd", Kind::kCount, "FD", "", "Shared page of the replay.", "", kHidden},
};

constexpr OptionSpec kBench[] = {
    {"NAME", Kind::kText, "NAME", "all", "Figures or groups of figures to measure.", "", kMany},
    {"--list", Kind::kFlag, "", "", "Name the figures and groups instead."},
    {"--quick", Kind::kFlag, "", "", "Fewer runs: all figures in under a minute."},
    {"--runs", Kind::kCount, "N", "9", "Runs of each figure and its baseline, alternating.", "", 0,
     1, 1001},
    kProgress,
    kJson,
    {"--child", Kind::kText, "TEXT", "", "This process is the other end of a figure.", "", kHidden},
};

constexpr OptionSpec kDoctor[] = {kStore, kJson};

constexpr OptionSpec kEvents[] = {
    kStore,
    {"--follow", Kind::kFlag, "", "", "Wait for more until interrupted."},
    {"--from", Kind::kCount, "SEQUENCE", "1",
     "First event to print, as far back as the owner keeps them; 0: only what comes (--follow)."},
    {"--limit", Kind::kCount, "N", "", "Stop after N events.", "", 0, 1},
    kJson,
};

constexpr OptionSpec kWhy[] = {kKey, kPool, kNs, kModel, kDtype, kHex, kJson};

constexpr OptionSpec kCompletion[] = {
    {"SHELL", Kind::kChoice, "SHELL", "", "Shell to complete in.", "bash|zsh", kRequired},
};

constexpr OptionSpec kDebug[] = {
    {"ACTION", Kind::kChoice, "ACTION", "", "What to do.", "options|corrupt|parse|hold|storm",
     kRequired},
    {"ADDRESS", Kind::kText, "ADDRESS", "", "Store, or file for parse."},
    {"--seed", Kind::kCount, "N", "1", "Which block and byte to corrupt; which rank holds."},
    {"--seconds", Kind::kReal, "SECONDS", "10", "How long a storm lasts."},
    {"--block-bytes", Kind::kBytes, "BYTES", "128KiB", "Payload of a block in a storm.", "", 0, 64,
     64u << 20},
    kJson,
};

constexpr CommandSpec kCommands[] = {
    {"format", "make a new store",
     "Reserves the memory that ADDRESS names and makes an empty store in it, ready to serve. Over "
     "an "
     "existing store it asks for the store's address to be typed, or needs --yes.",
     kFormat, cmd_format},
    {"info", "say what a store is",
     "Prints identity, geometry, sizes and who decides for the store. Reads only; needs no owner.",
     kInfo, cmd_info},
    {"check", "look for damage",
     "Reads all metadata of a store, trusts none of it, and names every kind of damage found. Exit "
     "code "
     "4 means damage. May run beside a living store.",
     kCheck, cmd_check},
    {"repair", "mend what can be mended",
     "Restores a damaged copy of the superblock and of claims from the other copy, and clears "
     "damaged "
     "lines of hosts, reapers and notices. Nobody may be attached. What cannot be mended is named, "
     "with the way on; --new-life starts the store anew where nothing else helps.",
     kRepair, cmd_repair},
    {"host", "give up a host that is lost for ever",
     "Says that no process of the host will ever store again, so that the owner takes back what "
     "they held at once. Refuses while something of the host moves. Exit code 3: it had no member.",
     kHost, cmd_host},
    {"setup", "administer the driver: claim, partitions, hosts",
     "Claims physical memory that several hosts share for the kvpool driver, cuts it into "
     "partitions, and says what there is. A store on a partition NAME has the address dev:NAME. "
     "All but list needs root; --dry-run says what would happen, and what would be refused why.",
     kSetup, cmd_setup},
    {"grow", "make a store larger while it is in use",
     "Allocates the bytes that the store's files lack and has the owner use them; nothing moves "
     "and "
     "members go on. Nothing is changed when there is no space.",
     kGrow, cmd_grow},
    {"shrink", "make a store smaller while it is in use",
     "Has the owner empty the last extents of the pool, takes them out of use and gives their "
     "storage back; members go on. Interrupted, it leaves the size as it was. Killed, the store "
     "may "
     "become smaller all the same within a lease; the storage comes back with the next shrink.",
     kGrow, cmd_shrink},
    {"stat", "counts of a store",
     "Prints how full the store is, by namespace and state, who its members are, and who owns it.",
     kStat, cmd_stat},
    {"top", "watch a store", "Redraws members, namespaces and rates until interrupted.", kTop,
     cmd_top},
    {"serve", "own a store, or stand by",
     "Serves the store as its owner, or stands by while another process does and takes over when "
     "that "
     "one is gone. Stops cleanly on SIGINT, SIGTERM and SIGHUP.",
     kServe, cmd_serve},
    {"put", "store a block",
     "Stores the bytes of FILE under KEY. A block is whole lines of 64 bytes: a file of another "
     "length "
     "is padded with zeros.",
     kPut, cmd_put},
    {"get", "read a block",
     "Reads the block under KEY and proves it intact. Exit code 3: no such block.", kGet, cmd_get},
    {"ls", "list blocks", "Lists blocks as the store's index has them. Reads only; needs no owner.",
     kLs, cmd_ls},
    {"rm", "remove blocks",
     "Removes the blocks under the keys. Exit code 3: there was none of them.", kRm, cmd_rm},
    {"ns", "namespaces: list, create, clear, bypass, resume, remove",
     "A namespace holds the blocks of one model in one layout. bypass makes all its lookups misses "
     "within a second, everywhere; resume ends that; clear forgets all its blocks at once.",
     kNsOptions, cmd_ns},
    {"replay", "replay a workload through real processes and verify every byte",
     "Makes a store, serves it, and starts members that replay a trace: each request looks its "
     "longest "
     "prefix up, reads and verifies those blocks, and stores the rest.",
     kReplay, cmd_replay},
    {"bench", "measure the figures",
     "Measures each figure beside its baseline in alternating runs and prints value, baseline, "
     "ratio "
     "and goal.",
     kBench, cmd_bench},
    {"doctor", "look at this machine",
     "Looks at shared memory, processor features, page sizes, limits and the store, and says how "
     "to fix "
     "what is wrong. Exit code 1: something is.",
     kDoctor, cmd_doctor},
    {"events", "what the owner decided", "Prints stored, removed and cleared blocks in order.",
     kEvents, cmd_events},
    {"why", "say why a key is a miss",
     "Looks at namespace, index and events and says why a lookup of KEY hits or misses. Exit code "
     "3: it "
     "is a miss.",
     kWhy, cmd_why},
    {"completion", "print the completion script of a shell",
     "Use: source <(kvpool completion bash), or put the output where the shell looks for it.",
     kCompletion, cmd_completion},
    {"debug", "for kvpool's own tests", "Prints the option table, or damages a store on purpose.",
     kDebug, cmd_debug, true},
};

}  // namespace

std::span<const CommandSpec> commands() { return kCommands; }

}  // namespace kvpool::tools
