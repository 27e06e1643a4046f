;; attack: `describe` traps.
;; expect: describe -> trap

;; in describe:
unreachable
