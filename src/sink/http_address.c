/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. An address is public only if it is known to be: for IPv6, that is 2000::/3
 *    except the ranges listed here.
 * 2. An IPv4 address inside an IPv6 one counts as itself.
 */
#include "sink/http.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

struct range {
	uint32_t start;
	int bits;
};

#define V4(a, b, c, d) ((uint32_t)(a) << 24 | (uint32_t)(b) << 16 | (uint32_t)(c) << 8 | (d))

static const struct range private_v4[] = {
	{ V4(0, 0, 0, 0), 8 },	     /* this network; 0.0.0.0 reaches this machine */
	{ V4(10, 0, 0, 0), 8 },	     /* private */
	{ V4(100, 64, 0, 0), 10 },   /* carrier-grade NAT */
	{ V4(127, 0, 0, 0), 8 },     /* loopback */
	{ V4(169, 254, 0, 0), 16 },  /* link-local, where clouds keep their metadata */
	{ V4(172, 16, 0, 0), 12 },   /* private */
	{ V4(192, 0, 0, 0), 24 },    /* protocol assignments */
	{ V4(192, 0, 2, 0), 24 },    /* documentation */
	{ V4(192, 88, 99, 0), 24 },  /* relays of 6to4 */
	{ V4(192, 168, 0, 0), 16 },  /* private */
	{ V4(198, 18, 0, 0), 15 },   /* benchmarks */
	{ V4(198, 51, 100, 0), 24 }, /* documentation */
	{ V4(203, 0, 113, 0), 24 },  /* documentation */
	{ V4(224, 0, 0, 0), 3 },     /* multicast, reserved, broadcast */
};

static bool is_private_v4(uint32_t address)
{
	for (size_t i = 0; i < sizeof(private_v4) / sizeof(*private_v4); i++) {
		if ((address ^ private_v4[i].start) >> (32 - private_v4[i].bits) == 0)
			return true;
	}
	return false;
}

static uint32_t read_v4(const unsigned char *at)
{
	return V4(at[0], at[1], at[2], at[3]);
}

static bool starts_with(const unsigned char address[16], const char *prefix, size_t len)
{
	return memcmp(address, prefix, len) == 0;
}

static bool is_private_v6(const unsigned char address[16])
{
	if (starts_with(address, "\0\0\0\0\0\0\0\0\0\0\xff\xff", 12) || /* mapped */
	    starts_with(address, "\0\x64\xff\x9b\0\0\0\0\0\0\0\0", 12)) /* NAT64 */
		return is_private_v4(read_v4(address + 12));
	if (starts_with(address, "\x20\x02", 2)) /* 6to4 */
		return is_private_v4(read_v4(address + 2));
	if (starts_with(address, "\x20\x01\0\0", 4) ||	   /* Teredo: its IPv4 part is obfuscated */
	    starts_with(address, "\x20\x01\x0d\xb8", 4) || /* documentation */
	    starts_with(address, "\x3f\xff", 2)) /* documentation, the larger half of it unused */
		return true;
	return address[0] >> 5 != 1;
}

bool pr_http_is_private(const struct sockaddr *address)
{
	if (address->sa_family == AF_INET)
		return is_private_v4(ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr));
	if (address->sa_family == AF_INET6)
		return is_private_v6(((const struct sockaddr_in6 *)address)->sin6_addr.s6_addr);
	return true;
}
