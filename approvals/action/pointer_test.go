package action

import "testing"

func TestPointerSteps(t *testing.T) {
	for name, step := range map[string]string{
		"": "", "to": "to", "a/b": "a~1b", "a~b": "a~0b", "~1": "~01", "~/": "~0~1", "~0~": "~00~0", "é/ü": "é~1ü",
	} {
		if got := EscapePointer(name); got != step {
			t.Errorf("%q is written as %q, not %q", name, got, step)
		}
		if got := UnescapePointer(step); got != name {
			t.Errorf("%q stands for %q, not %q", step, got, name)
		}
	}
}

func TestIsPointer(t *testing.T) {
	for _, p := range []string{"", "/", "/a", "/a/0", "/~0/~1", "/~01", "//", "/é"} {
		if !IsPointer(p) {
			t.Errorf("%q is refused", p)
		}
	}
	for _, p := range []string{"a", "a/b", "~0", "/~", "/a~", "/~2", "/a~/b", "/~~0", "#/a"} {
		if IsPointer(p) {
			t.Errorf("%q passes for a pointer", p)
		}
	}
}
