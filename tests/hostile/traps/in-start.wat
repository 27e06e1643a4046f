;; attack: The start function traps.
;; expect: instantiate -> trap

;; in core:
(func $start unreachable) (start $start)
