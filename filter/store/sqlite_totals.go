package store

import (
	"slices"
	"strings"
)

// sqliteSchema is sqlSchema with what only SQLite needs, because the store bounds the
// file itself: how many bytes each tenant uses.
var sqliteSchema = slices.Concat(sqlSchema[:1], [][]string{sqliteTotals}, sqlSchema[1:])

// sqliteTotals adds the table harmony_totals and the triggers that maintain it. They are
// part of every transaction that writes, also of a process of an earlier version that
// uses the same file.
//
// A row counts with what has no bound in it and 256 bytes (entryOverhead), in
// "bytes" or, if it is a text, in "texts". The 0 in place of a tenant, which is no
// tenant's name, has the texts of earlier versions: their keys are hashes.
//
// A row that is deleted with its parent is subtracted by a trigger before the parent is
// deleted. The row's own trigger then does not find the parent and changes nothing.
var sqliteTotals = slices.Concat([]string{
	`CREATE TABLE harmony_totals (
		tenant BLOB PRIMARY KEY,
		bytes  BIGINT NOT NULL,
		texts  BIGINT NOT NULL
	) WITHOUT ROWID`,
	`CREATE INDEX harmony_totals_bytes ON harmony_totals (bytes)`,
	`ALTER TABLE harmony_chains ADD COLUMN tenant BLOB`, // set with the first response
	`UPDATE harmony_chains SET tenant = (SELECT tenant FROM harmony_responses WHERE chain = harmony_chains.id LIMIT 1)`,
	`CREATE INDEX harmony_chains_tenant ON harmony_chains (tenant, expires)`,
	`CREATE INDEX harmony_conversations_tenant ON harmony_conversations (tenant, expires)`,
	`ALTER TABLE harmony_texts ADD COLUMN tenant BLOB NOT NULL DEFAULT 0`,
	`CREATE INDEX harmony_texts_tenant ON harmony_texts (tenant, expires)`,
	`INSERT INTO harmony_totals (tenant, bytes, texts) SELECT tenant, sum(bytes), sum(texts) FROM (
			SELECT tenant, 256 AS bytes, 0 AS texts FROM harmony_chains WHERE tenant IS NOT NULL
		UNION ALL
			SELECT tenant, length(body) + 256, 0 FROM harmony_responses
		UNION ALL
			SELECT r.tenant, 256, 0 FROM harmony_items i JOIN harmony_responses r ON r.key = i.response
		UNION ALL
			SELECT r.tenant, length(e.sse) + 256, 0 FROM harmony_events e JOIN harmony_responses r ON r.key = e.response
		UNION ALL
			SELECT tenant, length(metadata) + 256, 0 FROM harmony_conversations
		UNION ALL
			SELECT c.tenant, length(i.id) + length(i.json) + 256, 0
			FROM harmony_conversation_items i JOIN harmony_conversations c ON c.key = i.conversation
		UNION ALL
			SELECT tenant, 0, length(text) + 256 FROM harmony_texts
		) GROUP BY tenant`,
	`CREATE TRIGGER harmony_totals_empty AFTER UPDATE ON harmony_totals WHEN NEW.bytes = 0 AND NEW.texts = 0 BEGIN
		DELETE FROM harmony_totals WHERE tenant = NEW.tenant;
	END`,
},
	sqliteTriggers("harmony_chains", "tenant",
		sqliteCount{tenant: "{row}.tenant", bytes: "256"}, ""),
	sqliteTriggers("harmony_responses", "body",
		sqliteCount{tenant: "{row}.tenant", bytes: "length({row}.body) + 256"},
		`256 * (SELECT count(*) FROM harmony_items WHERE response = OLD.key)
			+ (SELECT coalesce(sum(length(sse) + 256), 0) FROM harmony_events WHERE response = OLD.key)`),
	[]string{`CREATE TRIGGER harmony_responses_chain AFTER INSERT ON harmony_responses BEGIN
		UPDATE harmony_chains SET tenant = NEW.tenant WHERE id = NEW.chain AND tenant IS NULL;
	END`},
	sqliteTriggers("harmony_items", "",
		sqliteCount{tenant: "(SELECT tenant FROM harmony_responses WHERE key = {row}.response)", bytes: "256"}, ""),
	sqliteTriggers("harmony_events", "",
		sqliteCount{
			tenant: "(SELECT tenant FROM harmony_responses WHERE key = {row}.response)",
			bytes:  "length({row}.sse) + 256",
		}, ""),
	sqliteTriggers("harmony_conversations", "metadata",
		sqliteCount{tenant: "{row}.tenant", bytes: "length({row}.metadata) + 256"},
		`(SELECT coalesce(sum(length(id) + length(json) + 256), 0) `+
			`FROM harmony_conversation_items WHERE conversation = OLD.key)`),
	sqliteTriggers("harmony_conversation_items", "",
		sqliteCount{
			tenant: "(SELECT tenant FROM harmony_conversations WHERE key = {row}.conversation)",
			bytes:  "length({row}.id) + length({row}.json) + 256",
		}, ""),
	sqliteTriggers("harmony_texts", "text",
		sqliteCount{tenant: "{row}.tenant", texts: "length({row}.text) + 256"}, ""),
)

// sqliteCount has the SQL expressions of what a row counts. In them, {row} is the row.
type sqliteCount struct {
	tenant, bytes, texts string
}

func (c sqliteCount) of(row, expression string) string {
	if expression == "" {
		return "0"
	}
	return strings.ReplaceAll(expression, "{row}", row)
}

func (c sqliteCount) add() string {
	return `INSERT INTO harmony_totals (tenant, bytes, texts)
		SELECT ` + c.of("NEW", c.tenant) + `, ` + c.of("NEW", c.bytes) + `, ` + c.of("NEW", c.texts) +
		` WHERE ` + c.of("NEW", c.tenant) + ` IS NOT NULL
		ON CONFLICT (tenant) DO UPDATE SET bytes = bytes + excluded.bytes, texts = texts + excluded.texts;
	`
}

func (c sqliteCount) subtract() string {
	return `UPDATE harmony_totals SET bytes = bytes - (` + c.of("OLD", c.bytes) +
		`), texts = texts - (` + c.of("OLD", c.texts) + `)
		WHERE tenant = ` + c.of("OLD", c.tenant) + `;
	`
}

// sqliteTriggers returns the statements that create the triggers of a table. changes is
// the column whose changes count, if there is one, and children an expression for the
// bytes of the rows that are deleted with a row.
func sqliteTriggers(table, changes string, count sqliteCount, children string) []string {
	deleted := count
	if children != "" {
		deleted.bytes += " + " + children
	}

	statements := []string{
		`CREATE TRIGGER ` + table + `_added AFTER INSERT ON ` + table + ` BEGIN
		` + count.add() + `END`,
		`CREATE TRIGGER ` + table + `_deleted BEFORE DELETE ON ` + table + ` BEGIN
		` + deleted.subtract() + `END`,
	}

	if changes != "" {
		statements = append(statements, `CREATE TRIGGER `+table+`_changed AFTER UPDATE OF `+changes+` ON `+table+` BEGIN
		`+count.subtract()+count.add()+`END`)
	}
	return statements
}
