// SPDX-License-Identifier: Apache-2.0

// order URL: an order and its message in one transaction, through lib/pq and plain SQL.
package main

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"log"
	"os"

	_ "github.com/lib/pq"
)

type order struct {
	ID    string `json:"order"`
	Total int    `json:"total"`
}

// place returns the id of the order's message, and whether it is a duplicate.
func place(db *sql.DB, o order, customer string) (message string, duplicate bool, err error) {
	payload, err := json.Marshal(o)
	if err != nil {
		return "", false, err
	}
	tx, err := db.Begin()
	if err != nil {
		return "", false, err
	}
	defer tx.Rollback() // nothing to do after a commit
	err = tx.QueryRow(`SELECT id, duplicate FROM postroom_enqueue('orders.created', $1,
		key => $2, idempotency_key => $2)`, string(payload), o.ID).Scan(&message, &duplicate)
	if err != nil || duplicate {
		return message, duplicate, err
	}
	_, err = tx.Exec(`INSERT INTO orders VALUES ($1, $2, $3)`, o.ID, customer, o.Total)
	if err != nil {
		return "", false, err
	}
	if o.Total <= 0 {
		return "", false, fmt.Errorf("order %s costs nothing", o.ID)
	}
	return message, false, tx.Commit()
}

func main() {
	db, err := sql.Open("postgres", os.Args[1])
	if err == nil {
		_, err = db.Exec(`CREATE TABLE IF NOT EXISTS orders
			(id text PRIMARY KEY, customer text, total integer)`)
	}
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	for i := 0; i < 2; i++ {
		message, duplicate, err := place(db, order{"go-1", 4200}, "Ada")
		if err != nil {
			log.Fatal(err)
		}
		words := "is placed"
		if duplicate {
			words = "was placed before"
		}
		fmt.Printf("go-1 %s, with message %s\n", words, message)
	}
	if _, _, err := place(db, order{"go-2", 0}, "Bob"); err != nil {
		fmt.Printf("%v: rolled back, and no message about it\n", err)
	}
}
