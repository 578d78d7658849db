// SPDX-License-Identifier: Apache-2.0

// worker URL: delivers messages until Ctrl-C, through lib/pq and plain SQL.
package main

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/lib/pq"
)

const lease = 30 * time.Second

type message struct {
	id, topic, payload string
	claims             int64
	key                sql.NullString
}

func deliver(m message) error {
	var order struct {
		Order string
		Total int
	}
	if err := json.Unmarshal([]byte(m.payload), &order); err != nil {
		return err
	}
	if order.Total <= 0 {
		return fmt.Errorf("order %s costs nothing", order.Order)
	}
	fmt.Println(m.topic, m.key.String, order.Order)
	return nil
}

func claim(db *sql.DB, worker string) (messages []message, err error) {
	rows, err := db.Query(`SELECT id, claims, topic, key, payload FROM postroom_claim($1, 10, $2)`,
		worker, lease.String())
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var m message
		if err := rows.Scan(&m.id, &m.claims, &m.topic, &m.key, &m.payload); err != nil {
			return nil, err
		}
		messages = append(messages, m)
	}
	return messages, rows.Err()
}

// work delivers a batch, and returns how many messages it had.
func work(db *sql.DB, worker string) (int, error) {
	start, failed := time.Now(), map[string]bool{}
	messages, err := claim(db, worker)
	for _, m := range messages {
		if err != nil {
			return 0, err
		}
		id, claims := pq.Array([]string{m.id}), pq.Array([]int64{m.claims})
		if m.key.Valid && failed[m.key.String] || time.Since(start) > lease/2 {
			// Never behind a failed message of its key, nor when the lease may end during the attempt.
			_, err = db.Exec(`SELECT postroom_release($1, $2, $3)`, worker, id, claims)
		} else if failure := deliver(m); failure != nil {
			_, err = db.Exec(`SELECT postroom_nack($1, $2, $3, $4)`, worker, m.id, m.claims, failure.Error())
			failed[m.key.String] = true
		} else {
			_, err = db.Exec(`SELECT postroom_ack($1, $2, $3)`, worker, id, claims)
		}
	}
	return len(messages), err
}

func main() {
	var worker string
	db, err := sql.Open("postgres", os.Args[1])
	if err == nil {
		err = db.QueryRow(`SELECT gen_random_uuid()`).Scan(&worker)
	}
	for err == nil {
		var count int
		if count, err = work(db, worker); err == nil && count == 0 {
			time.Sleep(time.Second)
		}
	}
	log.Fatal(err)
}
