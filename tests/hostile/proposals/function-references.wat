;; attack: Uses typed references to functions, which no policy needs.
;; expect: load -> invalid
;; proposal: FUNCTION_REFERENCES

;; in core:
(type $f (func))
(func (param (ref $f)) (call_ref $f (local.get 0)))
