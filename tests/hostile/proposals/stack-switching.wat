;; attack: Uses continuations, which no policy needs.
;; expect: load -> invalid
;; proposal: STACK_SWITCHING

;; in core:
(type $f (func))
(type (cont $f))
