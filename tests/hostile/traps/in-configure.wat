;; attack: `configure` traps.
;; expect: configure -> trap

;; in configure:
unreachable
