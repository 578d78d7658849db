/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The leases of the PostgreSQL store: rows and lanes, in flight, taken over, held
  * and freed, and the switch between the two kinds. The visibility of changes to a
  * statement is PostgreSQL's READ COMMITTED: it sees what was committed when it began,
 * and changes only what is still as it saw it. A transaction that is ended by a
 * crash has not happened.
 *
 * A transaction is here as many steps as it has moments that matter: where it
 * takes a snapshot, where it locks what others may wait for, where it commits.
 * Locks that are taken without waiting are in the step that commits: holding them
 * any longer only delays others.
 *
 * I1 to I8 are those of docs/internals/lanes.md. tests/model/check runs the
 * instances, and the mutations, each of which must be found out.
 *
 * Instances:	KEYS	1: A A B	2: A A A	3: A A and one without a key
 *		LANES	1, or 2: the last row has another than the first two
 *		DELAYED	a row that joins its key some time later
 *		UNSEEN	a row whose transaction commits some time later
 *		RUN	how many held rows of a key are freed at a time; with more
 *			than one, a claim may take one of them and leave the rest
 *		CRASHES, NAPS (past the end of a lease), FAILURES, RELEASES: how many
 * Mutations:	MUTANT, which is NONE or one of those that tests/model/check names
 */
#define ROWS 3
#define WORKERS 2
#define STRAY WORKERS /* a settling whose worker has gone, on its way to the server */
#define MAX_ATTEMPTS 2
#define NIL 255

#define BIT(r) (1 << (r))
#define HAS(set, r) (((set) & BIT(r)) != 0)
#define SET_OF(a, b, c) (((a) -> 1 : 0) | ((b) -> 2 : 0) | ((c) -> 4 : 0))

#define KEYLESS(r) (KEYS == 3 && (r) == 2)
#define KEY(r) ((KEYS != 2 && (r) == 2) -> 1 : 0)
#define LANE(r) ((LANES == 2 && (r) == 2) -> 1 : 0)
#define BEFORE(q, r) ((q) < (r) && KEY(q) == KEY(r))

mtype = { absent, pending, processing, delivered, dead, ready, scheduled, held, delayed };

/* postroom_outbox */
mtype status[ROWS];
mtype state[ROWS]; /* a delayed one joins its key when it is due */
bool due[ROWS];
byte attempts[ROWS];
byte claims[ROWS];
byte row_owner[ROWS] = NIL;
bool row_expired[ROWS];
byte row_lock[ROWS] = NIL;
byte unwritten[WORKERS]; /* of what a claim of rows has seen: what is still in that version */

/* postroom_lanes */
bool by_lane; /* how the database is leased */
byte lane_owner[LANES] = NIL;
bool lane_expired[LANES];
byte epoch[LANES];
byte in_flight[LANES];

/* The memory of a worker. */
typedef Batch {
	byte rows;
	byte lane; /* NIL: each row has its lease itself */
	byte epoch;
	byte claims[ROWS];
	byte done;
	byte failed;
	bool expired;
	byte owner;
	byte order; /* the rows in order when its claim began: for judging only */
};
Batch batch[WORKERS + 1];

bool begun;
byte claiming; /* claims that hold the lock on postroom_lanes */
byte crashes = CRASHES, naps = NAPS, failures = FAILURES, releases = RELEASES;

/* The expected state, kept separately from the tables. */
byte tried[ROWS];
byte uncounted[LANES]; /* rows that get one attempt more if their lane is lost */
byte overtaken;	  /* what was claimed before the row that commits late was there */
byte burying;	  /* burials whose second transaction, which sets free, has yet to come */
bool crossed;	  /* two were settling rows of one key, and each left the rest to the other */

#define UNFINISHED(r) (status[r] == pending || status[r] == processing)
#define IN_ORDER(r) (UNFINISHED(r) && state[r] != delayed)
/* Blockers of later messages of their key; messages in a lane are in order anyway. */
#define WALL(r) (UNFINISHED(r) && (state[r] == scheduled || state[r] == held))
#define CAN_LOCK(r) (row_lock[r] == NIL)
#define WALL_OF(q, r) (BEFORE(q, r) && WALL(q))
#define WALLED(r) (WALL_OF(0, r) || WALL_OF(1, r))
#define PARKABLE(r) (WALL_OF(0, r) -> CAN_LOCK(0) : WALL_OF(1, r) && CAN_LOCK(1))

#define IN_TURN(r) (status[r] == pending && state[r] == ready)
#define OF_LANE(r, l) (IN_TURN(r) && LANE(r) == (l) && (by_lane || !KEYLESS(r)))
#define ALONE(r) (status[r] == pending && state[r] == scheduled && due[r])
#define SUSPECT(r) (status[r] == processing && row_expired[r] && CAN_LOCK(r) && !WALLED(r))

/* Is there anything that a claim would change? */
#define WORK(r) (!WALLED(r) || PARKABLE(r))
#define LANE_WORK(l) (lane_owner[l] == NIL && ((OF_LANE(0, l) && WORK(0)) || \
		      (OF_LANE(1, l) && WORK(1)) || (OF_LANE(2, l) && WORK(2))))
#define ALONE_WORK ((ALONE(0) && WORK(0)) || (ALONE(1) && WORK(1)) || (ALONE(2) && WORK(2)))
#define KEYLESS_WORK (KEYS == 3 && IN_TURN(2) && !by_lane && lane_owner[LANE(2)] == NIL)

inline written(r)
{
	unwritten[0] = unwritten[0] & ~BIT(r);
	unwritten[1] = unwritten[1] & ~BIT(r)
}

/* The snapshot of a claim: its candidates, and what they may have to wait for. */
inline look(w, what)
{
	begun = true;
	claiming++;
	candidates = what;
	walls = SET_OF(WALL(0), WALL(1), WALL(2));
	batch[w].order = SET_OF(IN_ORDER(0), IN_ORDER(1), IN_ORDER(2))
}

/* Of the candidates, those that are not behind a wall, except one of mine. */
inline choose(mine, was)
{
	take = 0;
	for (r : 0 .. ROWS - 1) {
		behind = NIL;
		for (q : 0 .. ROWS - 1) {
			if
			:: behind == NIL && BEFORE(q, r) && HAS(walls, q) && !HAS(mine, q) ->
				behind = q
			:: else
			fi
		}
		if
		:: HAS(candidates, r) && behind == NIL -> take = take | BIT(r)
		:: HAS(candidates, r) && behind != NIL -> park(was)
		:: else
		fi
	}
	behind = 0;
	q = 0;
	r = 0
}

/* It must be unchanged; and its blocker is share-locked, unless another session is changing it. */
inline park(was)
{
	if
	:: status[r] == pending && state[r] == was &&
	   (MUTANT == NO_SHARE_LOCK || (CAN_LOCK(behind) && WALL(behind))) ->
		state[r] = held;
		written(r)
	:: else
	fi
}

/* I2: no other worker holds it under a valid lease. */
inline assert_unclaimed(w, r)
{
	assert(batch[1 - w].expired || !HAS(batch[1 - w].rows, r))
}

inline note_overtaking(w)
{
	if
	:: UNSEEN != NIL && !HAS(batch[w].order, UNSEEN) -> overtaken = overtaken | take
	:: else
	fi
}

/* Makes the rows of take this worker's, each with a lease of its own. */
inline lease_rows(w)
{
	note_overtaking(w);
	batch[w].rows = take;
	batch[w].lane = NIL;
	for (r : 0 .. ROWS - 1) {
		if
		:: HAS(take, r) ->
			assert_unclaimed(w, r);
			status[r] = processing;
			state[r] = scheduled;
			attempts[r]++;
			tried[r]++;
			claims[r]++;
			row_owner[r] = w;
			row_expired[r] = false;
			batch[w].claims[r] = claims[r];
			written(r)
		:: else
		fi
	}
	r = 0
}

inline lease_lane(w, l)
{
	note_overtaking(w);
	for (r : 0 .. ROWS - 1) {
		if
		:: HAS(take, r) ->
			assert_unclaimed(w, r)
		:: else
		fi
	}
	r = 0;
	lane_owner[l] = w;
	lane_expired[l] = false;
	in_flight[l] = take;
	uncounted[l] = take;
	batch[w].rows = take;
	batch[w].lane = l;
	batch[w].epoch = epoch[l] + 1
}

/* The lane is locked, if it is unchanged and has no owner. */
inline claim_lane(w, l)
{
	if
	:: lane_owner[l] == NIL && (epoch[l] == looked_at || MUTANT == STALE_SNAPSHOT) ->
		choose(0, ready);
		assert((take & ~SET_OF(IN_TURN(0), IN_TURN(1), IN_TURN(2))) == 0); /* I1 */
		if
		:: take != 0 && looked_by_lane -> lease_lane(w, l)
		:: take != 0 && !looked_by_lane -> lease_rows(w)
		:: else
		fi;
		if
		:: take != 0 -> epoch[l]++
		:: else
		fi
	:: else
	fi
}

inline claim_alone(w)
{
	if
	:: MUTANT == CHOOSE_BEFORE_LOCK -> mine = candidates
	:: MUTANT == ANY_VERSION -> mine = candidates & SET_OF(ALONE(0), ALONE(1), ALONE(2))
	:: else -> mine = unwritten[w] & SET_OF(ALONE(0), ALONE(1), ALONE(2))
	fi;
	candidates = unwritten[w] & SET_OF(ALONE(0), ALONE(1), ALONE(2));
	choose(mine, scheduled);
	mine = 0;
	if
	:: take != 0 -> lease_rows(w)
	:: else
	fi
}

inline claim_keyless(w)
{
	take = candidates & SET_OF(false, false, IN_TURN(2));
	if
	:: take != 0 -> lease_rows(w)
	:: else
	fi
}

inline end_claim(w)
{
	claiming--;
	unwritten[w] = 0;
	take = 0;
	candidates = 0;
	walls = 0;
	looked_at = 0;
	looked_by_lane = false;
	l = 0;
	if
	:: batch[w].rows == 0 -> batch[w].order = 0
	:: else
	fi
}

inline forget(i)
{
	batch[i].rows = 0;
	batch[i].lane = 0;
	batch[i].epoch = 0;
	batch[i].done = 0;
	batch[i].failed = 0;
	batch[i].expired = false;
	batch[i].order = 0;
	for (r : 0 .. ROWS - 1) {
		batch[i].claims[r] = 0
	}
	r = 0
}

/* The database's clock passes locked_until. */
inline expire(i)
{
	batch[i].expired = true;
	if
	:: batch[i].lane != NIL ->
		if
		:: lane_owner[batch[i].lane] == i && epoch[batch[i].lane] == batch[i].epoch ->
			lane_expired[batch[i].lane] = true
		:: else
		fi
	:: else ->
		for (r : 0 .. ROWS - 1) {
			if
			:: HAS(batch[i].rows, r) && status[r] == processing && row_owner[r] == i &&
			   claims[r] == batch[i].claims[r] ->
				row_expired[r] = true
			:: else
			fi
		}
		r = 0
	fi
}

inline copy_batch(i, to)
{
	batch[to].rows = batch[i].rows;
	batch[to].lane = batch[i].lane;
	batch[to].epoch = batch[i].epoch;
	batch[to].done = batch[i].done;
	batch[to].failed = batch[i].failed;
	batch[to].owner = i;
	for (r : 0 .. ROWS - 1) {
		batch[to].claims[r] = batch[i].claims[r]
	}
	r = 0
}

/* The rows of a lost lane: claimed one at a time from now on. */
inline take_over(l)
{
	assert(in_flight[l] == uncounted[l]); /* I5 */
	for (r : 0 .. ROWS - 1) {
		if
		:: HAS(in_flight[l], r) ->
			assert(IN_TURN(r));
			status[r] = processing;
			state[r] = scheduled;
			attempts[r]++;
			tried[r]++;
			claims[r]++;
			row_owner[r] = lane_owner[l];
			row_expired[r] = true;
			written(r)
		:: else
		fi
	}
	r = 0;
	uncounted[l] = 0;
	if
	:: MUTANT == KEEP_IN_FLIGHT
	:: else ->
		in_flight[l] = 0;
		lane_owner[l] = NIL;
		lane_expired[l] = false;
		epoch[l]++
	fi
}

inline settle_lane(i)
{
	l = batch[i].lane;
	if
	:: lane_owner[l] == batch[i].owner &&
	   (epoch[l] == batch[i].epoch || MUTANT == NO_EPOCH) ->
		assert(epoch[l] == batch[i].epoch); /* I4 */
		for (r : 0 .. ROWS - 1) {
			if
			:: HAS(batch[i].done, r) -> status[r] = delivered
			:: HAS(batch[i].failed, r) ->
				attempts[r]++;
				tried[r]++;
				claims[r]++;
				state[r] = scheduled;
				due[r] = false;
				written(r);
				if
				:: attempts[r] >= MAX_ATTEMPTS -> status[r] = dead
				:: else
				fi
			:: else
			fi
		}
		r = 0;
		in_flight[l] = 0;
		uncounted[l] = 0;
		lane_owner[l] = NIL;
		lane_expired[l] = false
	:: else
	fi;
	l = 0
}

/* The first statement of settling rows: locks what is still this owner's. */
inline lock_own(i)
{
	settling = 0;
	for (r : 0 .. ROWS - 1) {
		if
		:: HAS(batch[i].rows, r) && status[r] == processing &&
		   row_owner[r] == batch[i].owner &&
		   (claims[r] == batch[i].claims[r] || MUTANT == NO_FENCE) ->
			assert(claims[r] == batch[i].claims[r]); /* I4 */
			settling = settling | BIT(r);
			row_lock[r] = i
		:: else
		fi
	}
	r = 0
}

/* Which of them end here: delivered, or dead. */
#define ENDS(i, r) (HAS(settling, r) && (HAS(batch[i].done, r) || \
		    (HAS(batch[i].failed, r) && attempts[r] >= MAX_ATTEMPTS)))
#define ENDS_IN(i, r) ((ENDS(i, 0) && KEY(0) == KEY(r)) || (ENDS(i, 1) && KEY(1) == KEY(r)) || \
		       (ENDS(i, 2) && KEY(2) == KEY(r)))
#define BLOCKS(i, q, r) (UNFINISHED(q) && state[q] == scheduled && !ENDS(i, q) && \
			 (BEFORE(q, r) || (MUTANT == FREE_BEHIND_NONE && KEY(q) == KEY(r))))
#define BLOCKS_IN(i, r) (BLOCKS(i, 0, r) || BLOCKS(i, 1, r) || BLOCKS(i, 2, r))
#define LOCKED(i, q, r) (BLOCKS(i, q, r) && !CAN_LOCK(q))
#define LOCKED_IN(i, r) (LOCKED(i, 0, r) || LOCKED(i, 1, r) || LOCKED(i, 2, r))
#define HELD(r) (status[r] == pending && state[r] == held)

/* The snapshot of what sets free: the first RUN of a key, unless a blocker is before them. */
inline find_held(i)
{
	freeing = 0;
	behind = 0;
	for (r : 0 .. ROWS - 1) {
		if
		:: HELD(r) && behind < RUN && ENDS_IN(i, r) && !BLOCKS_IN(i, r) ->
			freeing = freeing | BIT(r);
			behind++
		:: HELD(r) && ENDS_IN(i, r) && LOCKED_IN(i, r) -> crossed = true
		:: else
		fi
	}
	behind = 0;
	r = 0
}

inline free_held()
{
	for (r : 0 .. ROWS - 1) {
		if
		:: HAS(freeing, r) && HELD(r) -> state[r] = scheduled; written(r)
		:: else
		fi
	}
	r = 0;
	freeing = 0
}

inline commit_rows(i)
{
	for (r : 0 .. ROWS - 1) {
		if
		:: HAS(settling, r) ->
			assert(status[r] == processing && claims[r] == batch[i].claims[r]); /* I4 */
			row_owner[r] = NIL;
			row_expired[r] = false;
			row_lock[r] = NIL;
			written(r);
			if
			:: HAS(batch[i].done, r) -> status[r] = delivered
			:: HAS(batch[i].failed, r) && attempts[r] >= MAX_ATTEMPTS ->
				status[r] = dead
			:: HAS(batch[i].failed, r) && attempts[r] < MAX_ATTEMPTS ->
				status[r] = pending;
				due[r] = false
			:: else ->
				status[r] = pending;
				attempts[r]--;
				tried[r]--
			fi
		:: else
		fi
	}
	r = 0;
	settling = 0;
	free_held()
}

/* All of it for a lane; for rows, what comes before commit_rows(). */
inline settle(i)
{
	if
	:: batch[i].lane != NIL ->
		settle_lane(i);
		forget(i)
	:: else ->
		lock_own(i);
		find_held(i)
	fi
}

/* I2, I3, I6: what must be true whenever a message goes out. */
inline assert_publishable(w, r)
{
	assert_unclaimed(w, r);
	assert(UNFINISHED(r));
	for (q : 0 .. ROWS - 1) {
		assert(!BEFORE(q, r) || !HAS(batch[w].order, q) || !UNFINISHED(q) ||
		       HAS(batch[w].done, q) || (q == UNSEEN && HAS(overtaken, r)))
	}
	q = 0
}

#define HELD_UP(w, r) ((HAS(batch[w].failed, 0) && BEFORE(0, r)) || \
		       (HAS(batch[w].failed, 1) && BEFORE(1, r)))
#define OPEN(w, r) (HAS(batch[w].rows, r) && !HAS(batch[w].done, r) && \
		    !HAS(batch[w].failed, r) && !HELD_UP(w, r))
#define ANY_OPEN(w) (OPEN(w, 0) || OPEN(w, 1) || OPEN(w, 2))
#define NEXT(w) (OPEN(w, 0) -> 0 : (OPEN(w, 1) -> 1 : 2))
#define IN_TIME(w) (!batch[w].expired || MUTANT == NO_CLOCK)
#define READY(w) (!IN_TIME(w) || !ANY_OPEN(w))
/* A settle waits for a row that another is settling; a lane is locked only while it changes. */
#define WAITS_FOR(i, r) (HAS(batch[i].rows, r) && !CAN_LOCK(r))
#define CAN_SETTLE(i) (batch[i].lane != NIL || \
		       !(WAITS_FOR(i, 0) || WAITS_FOR(i, 1) || WAITS_FOR(i, 2)))
/* Rows that the sweep finds: held, without a blocker. */
#define STRANDED(r) (HELD(r) && !BLOCKS_IN(STRAY, r))
/* The workers are alike: let the first be the first. */
#define TURN(w) ((w) == 0 || begun)

proctype worker(byte w)
{
	byte candidates, walls, mine, take, behind, looked_at, q, r, l, settling, freeing;
	bool looked_by_lane;

idle:
end:
	atomic {
		if
		:: TURN(w) && LANE_WORK(0) -> l = 0; goto lane
		/* A lane whose owner has been silent for too long. */
		:: lane_expired[0] -> d_step { take_over(0) }; goto idle
#if LANES == 2
		:: TURN(w) && LANE_WORK(1) -> l = 1; goto lane
		:: lane_expired[1] -> d_step { take_over(1) }; goto idle
#endif
		:: ALONE_WORK ->
			d_step {
				look(w, SET_OF(ALONE(0), ALONE(1), ALONE(2)));
				unwritten[w] = candidates
			};
			goto alone
#if RUN > 1
		/* A batch may be full with one. */
		:: ALONE(0) && WORK(0) -> d_step { look(w, BIT(0)); unwritten[w] = candidates }; goto alone
		:: ALONE(1) && WORK(1) -> d_step { look(w, BIT(1)); unwritten[w] = candidates }; goto alone
		:: ALONE(2) && WORK(2) -> d_step { look(w, BIT(2)); unwritten[w] = candidates }; goto alone
#endif
		:: TURN(w) && KEYLESS_WORK ->
			d_step { look(w, BIT(2)) };
			goto keyless
		:: SUSPECT(0) -> r = 0; goto suspect
		:: SUSPECT(1) -> r = 1; goto suspect
		:: SUSPECT(2) -> r = 2; goto suspect
		/* I7: nothing is left to the sweep but what a crash has left. */
		:: STRANDED(0) || STRANDED(1) || STRANDED(2) ->
			d_step {
				assert(burying > 0 || crossed);
				freeing = SET_OF(STRANDED(0), STRANDED(1), STRANDED(2));
				free_held()
			};
			goto idle
		fi;

/* One row whose lease has ended, by itself; or its burial. */
suspect:
		if
		:: attempts[r] < MAX_ATTEMPTS ->
			d_step {
				take = BIT(r);
				batch[w].order = SET_OF(IN_ORDER(0), IN_ORDER(1), IN_ORDER(2));
				lease_rows(w);
				take = 0
			};
			goto publish
		:: else ->
			d_step {
				settling = BIT(r);
				batch[w].failed = BIT(r);
				status[r] = dead;
				row_owner[r] = NIL;
				row_expired[r] = false;
				r = 0;
				burying++
			};
			goto unblock_behind_dead
		fi;

lane:
		looked_at = epoch[l];
		looked_by_lane = by_lane;
		d_step { look(w, SET_OF(OF_LANE(0, l), OF_LANE(1, l), OF_LANE(2, l))) }
	}

	atomic {
		if
		:: d_step { claim_lane(w, l); end_claim(w) }
		:: crashes > 0 -> crashes--; d_step { end_claim(w) }
		fi;
		goto claimed
	}

alone:
	atomic {
		if
		:: d_step { claim_alone(w); end_claim(w) }
		:: crashes > 0 -> crashes--; d_step { end_claim(w) }
		fi;
		goto claimed
	}

keyless:
	atomic {
		if
		:: d_step { claim_keyless(w); end_claim(w) }
		:: crashes > 0 -> crashes--; d_step { end_claim(w) }
		fi;

claimed:
		if
		:: batch[w].rows == 0 -> goto idle
		:: else -> goto publish
		fi
	}

/* Unblocks the rows behind a dead letter, in a transaction of its own. */
unblock_behind_dead:
	atomic {
		if
		:: d_step { find_held(w); settling = 0; batch[w].failed = 0 }
		:: crashes > 0 ->
			crashes--;
			d_step { settling = 0; batch[w].failed = 0 };
			goto idle
		fi
	}
	d_step { free_held(); burying-- }
	goto idle;

publish:
	atomic {
		if
		:: IN_TIME(w) && ANY_OPEN(w) ->
			d_step { l = NEXT(w); assert_publishable(w, l) };
			if
			:: batch[w].done = batch[w].done | BIT(l)
			:: failures > 0 ->
				failures--;
				batch[w].failed = batch[w].failed | BIT(l)
			fi;
			l = 0;
			goto publish
		:: IN_TIME(w) && ANY_OPEN(w) && releases > 0 && CAN_SETTLE(w) ->
			releases--;
			d_step { settle(w) };
			goto settled
		:: MUTANT != ONE_SNAPSHOT && READY(w) && CAN_SETTLE(w) ->
			d_step { settle(w) };
			goto settled
		:: MUTANT == ONE_SNAPSHOT && READY(w) ->
			d_step {
				settling = batch[w].rows;
				find_held(w);
				mine = freeing;
				freeing = 0;
				settling = 0
			};
			goto looked_too_early
		:: crashes > 0 ->
			crashes--;
			d_step { expire(w); forget(w) };
			goto idle
		/* The worker ended while its settle was on the way: whether that will be applied is unknown. */
		:: READY(w) && crashes > 0 && batch[STRAY].rows == 0 ->
			crashes--;
			d_step {
				expire(w);
				copy_batch(w, STRAY);
				forget(w)
			};
			goto idle
		fi
	}

looked_too_early:
	atomic {
		CAN_SETTLE(w) ->
		d_step {
			settle(w);
			freeing = (settling != 0 -> mine : 0);
			mine = 0
		}
	}

settled:
	atomic {
		true;
		d_step {
			commit_rows(w);
			forget(w)
		};
		goto idle
	}
}

proctype stray()
{
	byte behind, r, l, settling, freeing;

end:
	do
	:: atomic { batch[STRAY].rows != 0 && CAN_SETTLE(STRAY) -> d_step { settle(STRAY) } };
		d_step {
			commit_rows(STRAY);
			forget(STRAY)
		}
	od
}

proctype clock()
{
	byte r;

end:
	do
	:: atomic { naps > 0 && batch[0].rows != 0 && !batch[0].expired ->
		    naps--; d_step { expire(0) } }
	:: atomic { naps > 0 && batch[1].rows != 0 && !batch[1].expired ->
		    naps--; d_step { expire(1) } }
	:: d_step { status[0] == pending && !due[0] -> due[0] = true }
	:: d_step { status[1] == pending && !due[1] -> due[1] = true }
	:: d_step { status[2] == pending && !due[2] -> due[2] = true }
#if DELAYED != NIL
	:: d_step { state[DELAYED] == delayed && due[DELAYED] -> state[DELAYED] = ready }
#endif
#if UNSEEN != NIL
	:: d_step { status[UNSEEN] == absent -> status[UNSEEN] = pending }
#endif
	od
}

/* I8: postroom lease row|lane, in the middle of all this: it waits for claims, and they for it. */
proctype switch()
{
	d_step { (claiming == 0 || MUTANT == SWITCH_AT_ONCE) -> by_lane = !by_lane }
}

/* When no process can make another step. */
proctype judge()
{
	byte r;

	timeout;
	d_step {
		for (r : 0 .. ROWS - 1) {
			assert(status[r] == delivered || status[r] == dead); /* I7 */
			assert(attempts[r] == tried[r]) /* I5 */
		}
		for (r : 0 .. LANES - 1) {
			assert(lane_owner[r] == NIL && in_flight[r] == 0 && uncounted[r] == 0)
		}
		r = 0
	}
}

init {
	byte r;

	atomic {
		for (r : 0 .. ROWS - 1) {
			status[r] = (r == UNSEEN -> absent : pending);
			due[r] = (r != DELAYED);
			state[r] = (r == DELAYED -> delayed : ready)
		}
		for (r : 0 .. WORKERS) {
			batch[r].owner = r
		}
		r = 0;
		if
		:: by_lane = true
		:: by_lane = false
		fi;
		run worker(0);
		run worker(1);
		run stray();
		run clock();
		run switch();
		run judge()
	}
}
