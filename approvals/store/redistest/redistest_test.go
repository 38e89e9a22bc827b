package redistest

import (
	"testing"
)

func TestKilledServerKeepsWhatItConfirmed(t *testing.T) {
	s := Start(t)
	ctx := t.Context()
	if err := s.Client().Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	if err := s.Client().Get(ctx, "k").Err(); err == nil {
		t.Fatal("a killed server answered")
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Client().Get(ctx, "k").Result(); err != nil || got != "v" {
		t.Fatalf("after the restart: %q, %v", got, err)
	}
}
