/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PR_NET_PASSWORD_H
#define PR_NET_PASSWORD_H

/* For OpenSSL, which would otherwise prompt for the password of a key, on the terminal or stdin. */
static inline int pr_refuse_password_prompt(char *room, int size, int writing, void *context)
{
	(void)room;
	(void)size;
	(void)writing;
	(void)context;
	return -1;
}

#endif
