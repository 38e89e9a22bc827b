package policy

import (
	"errors"
	"reflect"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/countersign-mcp/countersign/approvals/action"
)

var (
	errKey    = errors.New("the name of a member is not a string")
	errIndex  = errors.New("an index is not a whole number within the list")
	errAlias  = errors.New("the name of a member differs in its spelling alone")
	errNative = errors.New("a value of the arguments stays what it is")
)

// object is a JSON object, to conditions a map from strings.
type object struct {
	group
	byName map[string]int // when there are many members
}

// many is from how many members on an object is searched by a map.
const many = 32

// Results of index beside an index.
const (
	absent = -1
	alias  = -2 // one is there whose name differs in its spelling alone
)

// index finds a member by its exact name. Where there is none, but one whose name
// differs only in case or in how its characters are written, nobody knows which of
// the two the upstream reads: that is neither there nor absent.
func (o *object) index(name string) int {
	o.load()
	if len(o.parts) < many {
		for i := range o.parts {
			if string(o.parts[i].name) == name {
				return i
			}
		}
	} else {
		if o.byName == nil {
			o.byName = make(map[string]int, len(o.parts))
			for i := range o.parts {
				o.byName[string(o.parts[i].name)] = i
			}
		}
		if i, ok := o.byName[name]; ok {
			return i
		}
	}
	for i := range o.parts {
		if action.Alike(o.parts[i].name, []byte(name)) {
			return alias
		}
	}
	return absent
}

// member is the JSON of a member; nil when there is none. known is false when
// there may be one.
func (o *object) member(name string) (raw []byte, known bool) {
	i := o.index(name)
	if i >= 0 {
		return o.parts[i].value, true
	}
	return nil, i == absent
}

// FindStringKey is how a condition selects a field. What is not found is looked
// for with Find.
func (o *object) FindStringKey(name string) (any, bool) {
	if i := o.index(name); i >= 0 {
		return o.at(i), true
	}
	return nil, false
}

// Find is nil for a name that isn't there, and an error for what is no name or
// may be one.
func (o *object) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return types.WrapErr(errKey), false
	}
	switch i := o.index(string(name)); {
	case i >= 0:
		return o.at(i), true
	case i == alias:
		return types.WrapErr(errAlias), false
	}
	return nil, false
}

// Get is Find, but that a name has to be there.
func (o *object) Get(key ref.Val) ref.Val {
	v, found := o.Find(key)
	if !found && v == nil {
		return types.WrapErr(errKey)
	}
	return v
}

// Contains tells whether there is a member of the name.
func (o *object) Contains(key ref.Val) ref.Val { return among(key, o, false) }

// Size counts the members.
func (o *object) Size() ref.Val {
	o.load()
	return types.Int(len(o.parts))
}

// Fold visits the members in the order in which they were sent.
func (o *object) Fold(f traits.Folder) {
	o.load()
	for i := range o.parts {
		if !f.FoldEntry(types.String(o.parts[i].name), o.at(i)) {
			return
		}
	}
}

// Iterator gives the names.
func (o *object) Iterator() traits.Iterator { return o.names().Iterator() }

func (o *object) names() traits.Lister {
	o.load()
	names := make([]ref.Val, len(o.parts))
	for i := range o.parts {
		names[i] = types.String(o.parts[i].name)
	}
	return types.NewRefValList(types.DefaultTypeAdapter, names)
}

// names is the function of that name, for objects of the call.
func names(v ref.Val) ref.Val {
	if o, ok := v.(*object); ok {
		return o.names()
	}
	return types.WrapErr(errTypes)
}

// onlyList is what a loop runs over. Over an object it would run over the names of
// its members, which somebody who wrote a rule on a list does not mean.
func onlyList(v ref.Val) ref.Val {
	if _, ok := v.(traits.Lister); ok {
		return v
	}
	return types.WrapErr(errNames)
}

// ConvertToNative refuses.
func (o *object) ConvertToNative(reflect.Type) (any, error) { return nil, errNative }

// ConvertToType gives the object itself, or its type.
func (o *object) ConvertToType(t ref.Type) ref.Val {
	switch t {
	case types.MapType:
		return o
	case types.TypeType:
		return types.MapType
	}
	return types.WrapErr(errTypes)
}

// Equal compares member by member.
func (o *object) Equal(other ref.Val) ref.Val { return same(o, other) }

// Type is that of maps.
func (o *object) Type() ref.Type { return types.MapType }

// Value is the object itself.
func (o *object) Value() any { return o }

// list is a JSON array.
type list struct{ group }

// Get is the element at an index, from 0.
func (l *list) Get(index ref.Val) ref.Val {
	l.load()
	n, ok := index.(types.Int)
	if !ok || n < 0 || int64(n) >= int64(len(l.parts)) {
		return types.WrapErr(errIndex)
	}
	return l.at(int(n))
}

// Size counts the elements.
func (l *list) Size() ref.Val {
	l.load()
	return types.Int(len(l.parts))
}

// Contains tells whether one element equals v.
func (l *list) Contains(v ref.Val) ref.Val { return among(v, l, false) }

// Fold visits the elements in order.
func (l *list) Fold(f traits.Folder) {
	l.load()
	for i := range l.parts {
		if !f.FoldEntry(types.Int(i), l.at(i)) {
			return
		}
	}
}

// whole is the list with every element converted.
func (l *list) whole() traits.Lister {
	l.load()
	for i := range l.parts {
		l.at(i)
	}
	return types.NewRefValList(types.DefaultTypeAdapter, l.values)
}

// Iterator gives the elements.
func (l *list) Iterator() traits.Iterator { return l.whole().Iterator() }

// Add joins two lists.
func (l *list) Add(other ref.Val) ref.Val { return l.whole().Add(other) }

// ConvertToNative refuses.
func (l *list) ConvertToNative(reflect.Type) (any, error) { return nil, errNative }

// ConvertToType gives the list itself, or its type.
func (l *list) ConvertToType(t ref.Type) ref.Val {
	switch t {
	case types.ListType:
		return l
	case types.TypeType:
		return types.ListType
	}
	return types.WrapErr(errTypes)
}

// Equal compares element by element.
func (l *list) Equal(other ref.Val) ref.Val { return same(l, other) }

// Type is that of lists.
func (l *list) Type() ref.Type { return types.ListType }

// Value is the list itself.
func (l *list) Value() any { return l }
