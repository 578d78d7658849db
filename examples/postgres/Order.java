// SPDX-License-Identifier: Apache-2.0
// Order URL: an order and its message in one transaction, through JDBC and plain SQL.

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;

public class Order {
	record Message(String id, boolean duplicate) {}

	static Message enqueue(Connection db, String order, String payload) throws SQLException {
		try (PreparedStatement enqueue = db.prepareStatement(
				"SELECT id, duplicate FROM postroom_enqueue('orders.created', ?::jsonb,"
				+ " key => ?, idempotency_key => ?)")) {
			enqueue.setString(1, payload);
			enqueue.setString(2, order);
			enqueue.setString(3, order);
			try (ResultSet answer = enqueue.executeQuery()) {
				answer.next();
				return new Message(answer.getString(1), answer.getBoolean(2));
			}
		}
	}

	// Returns the id of the order's message, and whether it is a duplicate.
	static Message place(Connection db, String order, String customer, int total) throws SQLException {
		Message message = enqueue(db, order,
			String.format("{\"order\": \"%s\", \"total\": %d}", order, total));

		if (message.duplicate())
			return message;
		try (PreparedStatement insert = db.prepareStatement("INSERT INTO orders VALUES (?, ?, ?)")) {
			insert.setString(1, order);
			insert.setString(2, customer);
			insert.setInt(3, total);
			insert.executeUpdate();
		}
		if (total <= 0)
			throw new IllegalArgumentException("order " + order + " costs nothing");
		return message;
	}

	// One transaction: it commits everything, or nothing.
	static void placeOrder(Connection db, String order, String customer, int total) throws SQLException {
		try {
			Message message = place(db, order, customer, total);
			db.commit();
			System.out.printf("%s %s, with message %s%n", order,
				message.duplicate() ? "was placed before" : "is placed", message.id());
		} catch (SQLException | RuntimeException error) {
			db.rollback();
			throw error;
		}
	}

	public static void main(String[] arguments) throws SQLException {
		try (Connection db = DriverManager.getConnection(arguments[0])) {
			db.setAutoCommit(false);
			try (Statement statement = db.createStatement()) {
				statement.execute("CREATE TABLE IF NOT EXISTS orders"
					+ " (id text PRIMARY KEY, customer text, total integer)");
			}
			placeOrder(db, "java-1", "Ada", 4200);
			placeOrder(db, "java-1", "Ada", 4200);
			try {
				placeOrder(db, "java-2", "Bob", 0);
			} catch (IllegalArgumentException error) {
				System.out.println(error.getMessage() + ": rolled back, and no message about it");
			}
		}
	}
}
