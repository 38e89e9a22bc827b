package store

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// checkRights refuses an account that may not run every command of the scripts,
// or may not publish on the channel of the hints: Redis does not undo what a script
// wrote before it was stopped.
func (s *Store) checkRights(ctx context.Context) error {
	sc := redis.NewScript(allowOOM + source("rights"))
	v, err := sc.Run(ctx, s.rdb, []string{s.k.rights()}, "", s.k.wakeChannel()).Result()
	switch {
	case err != nil && notPermitted(err):
		return &Refusal{Reason: "this account may not run scripts (EVAL, EVALSHA); give it the rights that the store needs"}
	case err != nil:
		return err
	}
	r, err := parseReply(v)
	if err != nil {
		return err
	}
	if r.code == "denied" {
		why := "this account may not run " + r.text + ": a script would be stopped half-way and lose messages or events"
		if r.text == "PUBLISH" {
			why = "this account may not PUBLISH on " + s.k.wakeChannel() + ", so nobody would be woken; give it the channel (&" + s.k.wakeChannel() + ") and the command"
		}
		return &Refusal{Reason: why}
	}
	return nil
}

// rights is the key of the try; nothing is ever there.
func (k keyspace) rights() string { return string(k) + "rights" }
