package store

// keyspace names every key. See doc.go.
type keyspace string

func newKeyspace(namespace string) keyspace { return keyspace("{" + namespace + "}:") }

func (k keyspace) record(id string) string   { return string(k) + "a:" + id }
func (k keyspace) view(id string) string     { return string(k) + "v:" + id }
func (k keyspace) envelope(id string) string { return string(k) + "p:" + id }
func (k keyspace) result(id string) string   { return string(k) + "r:" + id }
func (k keyspace) index(mac string) string   { return string(k) + "i:" + mac }
func (k keyspace) parkedBy(a string) string  { return string(k) + "ap:" + a }
func (k keyspace) newBy(a string) string     { return string(k) + "ah:" + a }
func (k keyspace) denials(a string) string   { return string(k) + "dn:" + a }
func (k keyspace) ownedBy(o string) string   { return string(k) + "own:" + o }
func (k keyspace) refused(id string) string  { return string(k) + "rn:" + id }
func (k keyspace) teller(id string) string   { return string(k) + "nl:" + id }
func (k keyspace) link(mac string) string    { return string(k) + "l:" + mac }
func (k keyspace) head(nonce string) string  { return string(k) + "hd:" + nonce }
func (k keyspace) labels(mac string) string  { return string(k) + "lb:" + mac }

func (k keyspace) published(nonce string) string { return string(k) + "gn:" + nonce }

func (k keyspace) generation() string  { return string(k) + "gen" }
func (k keyspace) due() string         { return string(k) + "due" }
func (k keyspace) pending() string     { return string(k) + "pend" }
func (k keyspace) toRun() string       { return string(k) + "torun" }
func (k keyspace) all() string         { return string(k) + "all" }
func (k keyspace) newInAll() string    { return string(k) + "nh" }
func (k keyspace) outbox() string      { return string(k) + "ob" }
func (k keyspace) events() string      { return string(k) + "ev" }
func (k keyspace) eventCount() string  { return string(k) + "evn" }
func (k keyspace) fence() string       { return string(k) + "fence" }
func (k keyspace) alive() string       { return string(k) + "alive" }
func (k keyspace) wakeChannel() string { return string(k) + "wake" }

// moving is the list that begins the KEYS of every script that moves a record.
func (k keyspace) moving(id, actor string, more ...string) []string {
	return append([]string{
		k.record(id), k.due(), k.outbox(), k.events(), k.eventCount(),
		k.pending(), k.parkedBy(actor), k.envelope(id), k.toRun(),
	}, more...)
}
