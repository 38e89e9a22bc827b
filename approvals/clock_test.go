package approvals

import (
	"testing"
	"time"
	"unsafe"
)

// suspended is now as a machine reads it that has slept for d: the wall clock has
// gone on, the monotonic one has not. No function makes such a time, so its second
// word, the monotonic reading, is turned back.
func suspended(t *testing.T, now time.Time, d time.Duration) time.Time {
	t.Helper()
	asleep := now.Add(d)
	(*[2]int64)(unsafe.Pointer(&asleep))[1] -= int64(d)
	if asleep.Sub(now) != 0 || asleep.Round(0).Sub(now.Round(0)) != d {
		t.Fatal("a time is not laid out as it was; mend this test")
	}
	return asleep
}

// A membership that was read before the machine was suspended is as old as the
// wall clock says, and one from before the clock was set is as old as the other
// clock says.
func TestMembershipAgesWhileTheMachineSleeps(t *testing.T) {
	req := Requirement{Approvers: []string{"slack-group:S1"}}
	seen := time.Now()
	m := Memberships{Groups: []string{"slack-group:S1"}, AsOf: seen}
	for name, tt := range map[string]struct {
		now time.Time
		may bool
	}{
		"at once":                      {seen, true},
		"a minute later":               {seen.Add(MembershipAge), true},
		"more than a minute later":     {seen.Add(MembershipAge + 1), false},
		"a short sleep":                {suspended(t, seen, time.Second), true},
		"an hour's sleep":              {suspended(t, seen, time.Hour), false},
		"the clock was set back":       {suspended(t, seen, -time.Hour), false},
		"an hour, and it was set back": {suspended(t, seen.Add(time.Hour), -time.Hour), false},
	} {
		if got := Eligible(req, "ben", m, tt.now).MayApprove; got != tt.may {
			t.Errorf("%s: may approve: %v", name, got)
		}
	}
}
