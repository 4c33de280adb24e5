// SPDX-License-Identifier: GPL-2.0-only
#include "seal.h"

/* Never zero, so that a line of zeros has no CRC of zero. */
static u32 seeded(const struct kvpool_seal *seal, struct kvpool_place at)
{
	__le64 words[3] = { cpu_to_le64(seal->life), cpu_to_le64(at.device),
			    cpu_to_le64(at.offset) };
	u32 crc = kvpool_crc32c(~0u, seal->uuid, sizeof(seal->uuid));

	crc = kvpool_crc32c(crc, words, sizeof(words));
	return crc ? crc : 1;
}

static u32 line_crc(const struct kvpool_seal *seal, struct kvpool_place at,
		    const union kvpool_line *line)
{
	u32 crc = kvpool_crc32c(seeded(seal, at), line->bytes, KVPOOL_LINE_BYTES - 4);

	return crc ? crc : 1;
}

void kvpool_seal_line(const struct kvpool_seal *seal, struct kvpool_place at,
		      union kvpool_line *line)
{
	line->words[15] = cpu_to_le32(line_crc(seal, at, line));
}

bool kvpool_line_intact(const struct kvpool_seal *seal, struct kvpool_place at,
			const union kvpool_line *line, u32 magic)
{
	return le32_to_cpu(line->words[0]) == magic &&
	       le32_to_cpu(line->words[15]) == line_crc(seal, at, line);
}

u32 kvpool_body_crc(const struct kvpool_seal *seal, struct kvpool_place at, u64 epoch,
		    const void *body, size_t bytes)
{
	__le64 word = cpu_to_le64(epoch);
	u32 crc = kvpool_crc32c(seeded(seal, at), &word, sizeof(word));

	crc = kvpool_crc32c(crc, body, bytes);
	return crc ? crc : 1;
}
