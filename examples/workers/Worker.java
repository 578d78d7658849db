// SPDX-License-Identifier: Apache-2.0
// Worker URL: delivers messages until Ctrl-C, through JDBC and plain SQL.

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.UUID;

public class Worker {
	static final int LEASE = 30; // seconds

	record Message(UUID id, long claims, String topic, String key, String order, int total) {}

	static void deliver(Message message) {
		if (message.total() <= 0)
			throw new IllegalArgumentException("order " + message.order() + " costs nothing");
		System.out.println(message.topic() + " " + message.key() + " " + message.order());
	}

	static List<Message> claim(Connection db, UUID worker) throws SQLException {
		List<Message> messages = new ArrayList<>();

		try (PreparedStatement claim = db.prepareStatement(
				"SELECT id, claims, topic, key, payload ->> 'order', (payload ->> 'total')::int"
				+ " FROM postroom_claim(?, 10, make_interval(secs => ?))")) {
			claim.setObject(1, worker);
			claim.setInt(2, LEASE);
			try (ResultSet row = claim.executeQuery()) {
				while (row.next())
					messages.add(new Message(row.getObject(1, UUID.class), row.getLong(2), row.getString(3),
						row.getString(4), row.getString(5), row.getInt(6)));
			}
		}
		return messages;
	}

	static void settle(Connection db, String function, UUID worker, Message message) throws SQLException {
		try (PreparedStatement settle = db.prepareStatement("SELECT " + function + "(?, ?, ?)")) {
			settle.setObject(1, worker);
			settle.setArray(2, db.createArrayOf("uuid", new UUID[] { message.id() }));
			settle.setArray(3, db.createArrayOf("bigint", new Long[] { message.claims() }));
			settle.execute();
		}
	}

	static void nack(Connection db, UUID worker, Message message, String error) throws SQLException {
		try (PreparedStatement nack = db.prepareStatement("SELECT postroom_nack(?, ?, ?, ?)")) {
			nack.setObject(1, worker);
			nack.setObject(2, message.id());
			nack.setLong(3, message.claims());
			nack.setString(4, error);
			nack.execute();
		}
	}

	// Delivers a batch, and returns how many messages it had.
	static int work(Connection db, UUID worker) throws SQLException {
		long start = System.nanoTime();
		Set<String> failed = new HashSet<>();
		List<Message> messages = claim(db, worker);

		for (Message message : messages) {
			// Never behind a failed message of its key, nor when the lease may end during the attempt.
			if (failed.contains(message.key()) || System.nanoTime() - start > LEASE * 1_000_000_000L / 2) {
				settle(db, "postroom_release", worker, message);
				continue;
			}
			try {
				deliver(message);
				settle(db, "postroom_ack", worker, message);
			} catch (RuntimeException error) {
				nack(db, worker, message, error.getMessage());
				if (message.key() != null)
					failed.add(message.key());
			}
		}
		return messages.size();
	}

	public static void main(String[] arguments) throws SQLException, InterruptedException {
		try (Connection db = DriverManager.getConnection(arguments[0])) {
			UUID worker = UUID.randomUUID();

			while (true)
				if (work(db, worker) == 0)
					Thread.sleep(1000);
		}
	}
}
