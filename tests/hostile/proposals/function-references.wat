;; attack: Uses typed references to functions, which no policy needs.
;; expect: load -> invalid

;; in core:
(type $f (func))
(func (param (ref $f)) (call_ref $f (local.get 0)))
