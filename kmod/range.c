// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which physical memory may be claimed: reserved by firmware, or a CXL window, at or above 4
 * GiB, in no window of a PCI bridge, and no System RAM. That it is not busy is no proof of
 * intent, so each 2 MiB must be covered by such a range.
 */
#include <linux/acpi.h>
#include <linux/ioport.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/security.h>

#include "internal.h"

static bool unsafe_ranges;
module_param(unsafe_ranges, bool, 0444);
MODULE_PARM_DESC(unsafe_ranges, "Claim what firmware did not reserve (taints; not under lockdown)");

struct coverage {
	u64 start;
	u64 end;
	u64 reached; /* everything below is covered */
	bool advanced;
};

static int cover(struct resource *res, void *arg)
{
	struct coverage *coverage = arg;

	if (res->start <= coverage->reached && res->end + 1 > coverage->reached) {
		coverage->reached = res->end + 1;
		coverage->advanced = true;
	}
	return 0;
}

static bool is_covered(const struct kvpool_range *range)
{
	static const unsigned long kinds[] = { IORES_DESC_RESERVED, IORES_DESC_SOFT_RESERVED,
					       IORES_DESC_CXL };
	struct coverage coverage = { range->start, range->start + range->bytes, range->start };
	u32 i;

	do {
		coverage.advanced = false;
		for (i = 0; i < ARRAY_SIZE(kinds); i++)
			walk_iomem_res_desc(kinds[i], IORESOURCE_MEM, coverage.start,
					    coverage.end - 1, &coverage, cover);
	} while (coverage.advanced && coverage.reached < coverage.end);
	return coverage.reached >= coverage.end;
}

static bool overlaps(const struct kvpool_range *range, u64 start, u64 end)
{
	return range->start <= end && start < range->start + range->bytes;
}

/* Configuration space of PCI, which firmware reserves too. */
static bool meets_ecam(const struct kvpool_range *range)
{
	struct acpi_table_header *header;
	struct acpi_mcfg_allocation *entry;
	bool found = false;

	if (ACPI_FAILURE(acpi_get_table(ACPI_SIG_MCFG, 0, &header)))
		return false;
	for (entry = (void *)header + sizeof(struct acpi_table_mcfg);
	     (void *)(entry + 1) <= (void *)header + header->length; entry++) {
		u64 start = entry->address + ((u64)entry->start_bus_number << 20);
		u64 end = entry->address + (((u64)entry->end_bus_number + 1) << 20) - 1;

		found = found || overlaps(range, start, end);
	}
	acpi_put_table(header);
	return found;
}

static bool meets_pci(const struct kvpool_range *range)
{
	bool cxl = region_intersects(range->start, range->bytes, IORESOURCE_MEM, IORES_DESC_CXL) ==
		   REGION_INTERSECTS;
	struct pci_dev *dev = NULL;
	struct pci_bus *bus = NULL;
	struct resource *res;
	int i;

	if (meets_ecam(range))
		return true;
	if (cxl)
		return false;
	while ((bus = pci_find_next_bus(bus)))
		pci_bus_for_each_resource(bus, res, i)
			if (res && resource_type(res) == IORESOURCE_MEM && res->end &&
			    /* A root bus without windows of its own has all of memory. */
			    !(res->start == 0 && res->end == iomem_resource.end) &&
			    overlaps(range, res->start, res->end))
				return true;
	for_each_pci_dev(dev) {
		for (i = 0; i < DEVICE_COUNT_RESOURCE; i++) {
			res = &dev->resource[i];
			if (resource_type(res) != IORESOURCE_MEM || !res->flags || !res->end ||
			    !overlaps(range, res->start, res->end))
				continue;
			pci_dev_put(dev);
			return true;
		}
	}
	return false;
}

static int allow_unsafe(const struct kvpool_range *range)
{
	if (!unsafe_ranges || security_locked_down(LOCKDOWN_PCI_ACCESS))
		return -EPERM;
	pr_warn("range %pa is not reserved by firmware; claimed because unsafe_ranges is set\n",
		&(phys_addr_t){ range->start });
	add_taint(TAINT_USER, LOCKDEP_STILL_OK);
	return 0;
}

/* Who stands in the way, for the one reason that has a command to resolve it. */
static u32 busy_reason(const struct kvpool_range *range)
{
	if (region_intersects(range->start, range->bytes, IORESOURCE_SYSTEM_RAM, IORES_DESC_NONE) !=
	    REGION_DISJOINT)
		return KVPOOL_REFUSED_RAM;
	return KVPOOL_REFUSED_BUSY;
}

int kvpool_range_request(const struct kvpool_range *range, struct resource **ret_region,
			 u32 *ret_reason)
{
	int err = -EBUSY;

	*ret_region = request_mem_region_exclusive(range->start, range->bytes, "kvpool");
	if (!*ret_region) {
		*ret_reason = busy_reason(range);
		return err;
	}
	/* After the request: now memory cannot be added below it any more. */
	*ret_reason = KVPOOL_REFUSED_RAM;
	if (region_intersects(range->start, range->bytes, IORESOURCE_SYSTEM_RAM, IORES_DESC_NONE) !=
	    REGION_DISJOINT)
		goto release;
	*ret_reason = KVPOOL_REFUSED_PCI;
	if (meets_pci(range))
		goto release;
	*ret_reason = KVPOOL_REFUSED_NOT_RESERVED;
	if (!is_covered(range)) {
		err = allow_unsafe(range);
		if (err)
			goto release;
	}
	*ret_reason = KVPOOL_REFUSED_NOT;
	return 0;
release:
	kvpool_range_release(range);
	*ret_region = NULL;
	return err;
}

void kvpool_range_release(const struct kvpool_range *range)
{
	release_mem_region(range->start, range->bytes);
}
