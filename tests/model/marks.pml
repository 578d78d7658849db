/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The low-water mark of a lane beside transactions that stay open: I9 of
 * docs/internals/lanes.md. Producers draw a seq, write messages of one key, and
 * commit or roll back at any time. Relays look who holds locks, raise the mark
 * past those that stay, and claim. A claim must find what a scan of the whole
 * lane would find in the same snapshot: the lowest visible message that is ready.
 *
 * A step is what one snapshot, or one look at a moving thing, sees. The sequence
 * and the locks are not part of a snapshot. At its end a transaction becomes
 * visible, or is undone, before it gives up its locks; it draws a seq under its
 * lock, maybe before it has an id.
 *
 * Instances:	PRODUCERS, of which the first FIRST write two messages each
 *		RELAYS	that raise the mark
 * Mutations:	MUTANT, which is NONE or one of those that tests/model/check names
 */
#define SEQS (PRODUCERS + FIRST)
#define ABSENT 255

#define BIT(p) (1 << (p))
#define HAS(set, p) (((set) & BIT(p)) != 0)

/* postroom_outbox; who wrote which seq. */
byte drawn;
byte writer[SEQS + 1] = ABSENT;
bool settled[SEQS + 1];

/* Sets of producers. */
byte locking;	/* holds a lock on the table */
byte with_id;
byte finished;	/* no snapshot shows it as open any more */
byte committed;

/* postroom_lanes */
byte mark = 1;
byte passed;
byte passed_from[PRODUCERS];

#define READY(seq) (writer[seq] != ABSENT && HAS(committed, writer[seq]) && !settled[seq])

/* The lowest ready message from start to end in this snapshot; none: end + 1. */
inline scan(start, end, ret)
{
	ret = (start <= end -> start : end + 1);
	do
	:: ret <= end && !READY(ret) -> ret++
	:: else -> break
	od
}

/* Where a scan starts: below the mark if one that was passed has ended. */
inline choose_start(ret)
{
	ret = mark;
	for (p : 0 .. PRODUCERS - 1) {
		if
		:: HAS(passed & finished, p) && passed_from[p] < ret -> ret = passed_from[p]
		:: else
		fi
	}
	p = 0
}

proctype producer(byte me)
{
	byte seq;
	bool again;

	locking = locking | BIT(me);
write:
	atomic { drawn++; seq = drawn }
	/* The first write gives it an id. */
	d_step {
		with_id = with_id | BIT(me);
		writer[seq] = me;
		seq = 0
	}
	if
	:: me < FIRST && !again -> again = true; goto write
	:: else
	fi;
	if
	:: d_step { committed = committed | BIT(me); finished = finished | BIT(me) }
	:: finished = finished | BIT(me)
	fi;
	locking = locking & ~BIT(me)
}

proctype relay()
{
	byte seq, holders, lasting, start, found, from[PRODUCERS], p;

end:
	do
	:: if
	   :: MUTANT != HOLDERS_FIRST -> seq = drawn; holders = locking
	   :: MUTANT == HOLDERS_FIRST -> holders = locking; seq = drawn
	   fi;
	   /* Later: who is still there. One without an id cannot be passed. */
	   atomic {
		(holders & locking & ~with_id) == 0 || MUTANT == PASS_WITHOUT_ID ->
		lasting = holders & locking & with_id;
		holders = 0
	   }
	   /* One snapshot. */
	   d_step {
		if
		:: MUTANT == RAISE_FROM_MARK -> start = mark
		:: else -> choose_start(start)
		fi;
		if
		:: mark <= seq || start < mark ->
			scan(start, seq, found);
			for (p : 0 .. PRODUCERS - 1) {
				from[p] = (HAS(passed, p) && MUTANT != FORGET_FROM -> passed_from[p] : mark)
			}
			p = 0
		:: else -> found = 0
		fi;
		start = 0;
		seq = 0
	   }
	   d_step {
		if
		:: found > mark || (found > 0 && lasting != passed) ->
			mark = found;
			passed = lasting;
			for (p : 0 .. PRODUCERS - 1) {
				passed_from[p] = (HAS(lasting, p) -> from[p] : 0)
			}
		:: else
		fi;
		for (p : 0 .. PRODUCERS - 1) {
			from[p] = 0
		}
		p = 0;
		found = 0;
		lasting = 0
	   }
	od
}

inline claim_first()
{
	scan(start, SEQS, found);
	scan(1, SEQS, all);
	assert(found == all); /* I9 */
	if
	:: found <= SEQS -> settled[found] = true
	:: else
	fi;
	start = 0;
	found = 0;
	all = 0
}

/* Claims and settles; another worker cannot come between, because it would change the lane's epoch. */
proctype claim()
{
	byte start, found, all, p;

end:
	do
	:: MUTANT != TWO_SNAPSHOTS ->
		d_step { choose_start(start); claim_first() }
	:: MUTANT == TWO_SNAPSHOTS ->
		d_step { choose_start(start) };
		d_step { claim_first() }
	od
}

init {
	byte p;

	atomic {
		for (p : 0 .. PRODUCERS - 1) {
			run producer(p)
		}
		for (p : 1 .. RELAYS) {
			run relay()
		}
		p = 0;
		run claim()
	}
}
