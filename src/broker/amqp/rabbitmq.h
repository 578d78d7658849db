/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The headers of rabbitmq-c. Version 0.12 moved them to a directory of their own, and
 * the old names warn since then. Include this file instead of either.
 */
#ifndef PR_BROKER_AMQP_RABBITMQ_H
#define PR_BROKER_AMQP_RABBITMQ_H

#ifdef PR_RABBITMQ_C_DIRECTORY
#include <rabbitmq-c/amqp.h>
#include <rabbitmq-c/framing.h>
#include <rabbitmq-c/tcp_socket.h>
#else
#include <amqp.h>
#include <amqp_framing.h>
#include <amqp_tcp_socket.h>
#endif

#endif
