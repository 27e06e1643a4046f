;; attack: Uses continuations, which no policy needs.
;; expect: load -> invalid

;; in core:
(type $f (func))
(type (cont $f))
