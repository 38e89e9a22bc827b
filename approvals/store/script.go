package store

import (
	"context"
	"embed"
	"fmt"

	"github.com/redis/go-redis/v9"
)

//go:embed scripts/*.lua
var sources embed.FS

// scripts holds every transition, ready to be sent.
type scripts struct {
	park, decide, refuse, claim, renew, finish, end, resolve, tick, mark, adopt, lease, due, postpone, head, read, clock, prune, pin, publish, labels *script
}

// script is sent by its hash, and by its text when the server does not know it:
// a flushed cache or a failover costs one more round trip. In pipelines it is
// always sent as text, since there a NOSCRIPT would come too late.
type script struct {
	name string
	*redis.Script
	text string
}

// allowOOM lets a script write when the server is at maxmemory. Decisions,
// claims and ends must get through; new calls need not.
const allowOOM = "#!lua flags=allow-oom\n"

func loadScripts(embedded bool) *scripts {
	prelude := source("prelude")
	load := func(name string, flags string) *script {
		text := prelude + "\n" + source(name)
		if !embedded { // miniredis can't read the first line
			text = flags + text
		}
		return &script{name: name, Script: redis.NewScript(text), text: text}
	}
	return &scripts{
		park: load("park", ""), decide: load("decide", allowOOM), refuse: load("refuse", ""),
		claim: load("claim", allowOOM), renew: load("renew", allowOOM), finish: load("finish", allowOOM),
		end: load("end", allowOOM), resolve: load("resolve", allowOOM), tick: load("tick", allowOOM),
		mark: load("mark", ""), adopt: load("adopt", ""), lease: load("lease", ""), due: load("due", ""), postpone: load("postpone", allowOOM), head: load("head", ""),
		read: load("read", ""), clock: load("clock", ""), prune: load("prune", allowOOM), pin: load("pin", allowOOM), publish: load("publish", allowOOM),
		labels: load("labels", ""),
	}
}

func source(name string) string {
	b, err := sources.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		panic("store: " + err.Error()) // the file is embedded
	}
	return string(b)
}

// reply is what a script says: a word, and one more value.
type reply struct{ code, text string }

func parseReply(v any) (reply, error) {
	list, ok := v.([]any)
	if !ok || len(list) != 2 {
		return reply{}, fmt.Errorf("a script replied %T", v)
	}
	return reply{fmt.Sprint(list[0]), fmt.Sprint(list[1])}, nil
}

// run sends a script. Every error means that it may have run.
func (s *Store) run(ctx context.Context, sc *script, keys []string, args ...any) (reply, error) {
	if err := s.ready(ctx); err != nil {
		return reply{}, unavailable(sc.name, err)
	}
	v, err := sc.Run(ctx, s.rdb, keys, args...).Result()
	if err != nil {
		return reply{}, unavailable(sc.name, err)
	}
	r, err := parseReply(v)
	if err != nil {
		return reply{}, unavailable(sc.name, err)
	}
	return r, nil
}
