package webhook

import (
	"strconv"
	"testing"
	"time"
)

func TestLimiterIsBounded(t *testing.T) {
	now := time.Unix(1e9, 0)
	l := newLimiter(1, 2, 100, func() time.Time { return now })
	for i := range 10_000 {
		l.allow(strconv.Itoa(i))
	}
	if len(l.keys) != 100 || l.seen.Len() != 100 {
		t.Fatalf("%d keys, %d in the list", len(l.keys), l.seen.Len())
	}
	for i, want := range []bool{true, true, false} {
		if l.allow("a") != want {
			t.Fatalf("request %d of a burst of 2: allowed is %t", i+1, !want)
		}
	}
	for i := range 99 {
		l.allow("n" + strconv.Itoa(i))
	}
	if l.allow("a") {
		t.Fatal("a busy key was forgotten while it was among the last seen")
	}
	now = now.Add(time.Second)
	if !l.allow("a") {
		t.Fatal("a second later it is still closed")
	}
}

func TestIPKey(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.7": "192.0.2.7", "::ffff:192.0.2.7": "192.0.2.7", "2001:db8:1:2:3::4": "2001:db8:1:2::/64",
		"2001:db8:1:2:ffff::1": "2001:db8:1:2::/64", "nonsense": "nonsense",
	} {
		if got := ipKey(in); got != want {
			t.Errorf("%s: %s", in, got)
		}
	}
}
