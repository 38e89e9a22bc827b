package policy

import (
	"cmp"
	"math"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// compared is negative when l is less than r, and zero when both are equal. Two
// numbers of any kind have an order, and so have two values of one other type that
// has one.
func compared(l, r ref.Val) (int, error) {
	if numeric(l) && numeric(r) {
		return numbersCompared(l, r)
	}
	a, ok := l.(traits.Comparer)
	if !ok || l.Type() != r.Type() {
		return 0, errTypes
	}
	order, ok := a.Compare(r).(types.Int)
	if !ok {
		return 0, errTypes
	}
	return int(order), nil
}

func numeric(v ref.Val) bool {
	switch v.(type) {
	case types.Int, types.Uint, types.Double:
		return true
	}
	return false
}

// numbersCompared compares by value: no number is rounded. What is not a number
// (NaN) has no order.
func numbersCompared(l, r ref.Val) (int, error) {
	a, okA := asNumber(l)
	b, okB := asNumber(r)
	switch {
	case !okA || !okB:
		return 0, errOrder
	case a.floor != b.floor:
		return cmp.Compare(a.floor, b.floor), nil
	case a.whole != b.whole:
		return cmp.Compare(a.whole, b.whole), nil
	}
	return cmp.Compare(a.rest, b.rest), nil
}

// exact is a number: whole + rest where it is within 64 bits. floor tells the
// ranges beyond apart, and those of int64 and the upper half of uint64.
type exact struct {
	floor float64 // -2: less than any int64; 0: an int64; 1: more, within a uint64; 2: more than that
	whole int64   // or a uint64 less 2^63
	rest  float64
}

const (
	twoTo63 = 1 << 63
	twoTo64 = 1 << 64
)

func asNumber(v ref.Val) (exact, bool) {
	switch n := v.(type) {
	case types.Int:
		return exact{whole: int64(n)}, true
	case types.Uint:
		if n >= twoTo63 {
			return exact{floor: 1, whole: int64(n - twoTo63)}, true
		}
		return exact{whole: int64(n)}, true
	case types.Double:
		d := float64(n)
		whole := math.Floor(d)
		switch {
		case math.IsNaN(d):
			return exact{}, false
		case d < -twoTo63:
			return exact{floor: -2, rest: d}, true
		case d >= twoTo64:
			return exact{floor: 2, rest: d}, true
		case d >= twoTo63:
			return exact{floor: 1, whole: int64(whole - twoTo63), rest: d - whole}, true
		}
		return exact{whole: int64(whole), rest: d - whole}, true
	}
	return exact{}, false
}
