# Hashes, strings, regular expressions, closures, sorting and cycles; prints digests of the results.
# SPDX-License-Identifier: MIT
use strict;
use warnings;
use Digest::SHA qw(sha256_hex);
use Scalar::Util qw(weaken);

my $state = 42;
sub next_random { $state = ($state * 1103515245 + 12345) & 0x7fffffff; return ($state >> 8) % $_[0]; }

my %words;
for my $i (1 .. 300_000) {
    my $word = join '', map { chr(97 + next_random(26)) } 1 .. 2 + next_random(2);
    push @{ $words{$word} }, $i;
    delete $words{$word} if @{ $words{$word} } > 20;
}
print scalar(keys %words), ' ', sha256_hex(join ',', map { "$_=@{$words{$_}}" } sort keys %words), "\n";

my $text = join ' ', map { sprintf '%05d-%s', $_, 'x' x next_random(40) } 1 .. 60_000;
my @found = $text =~ /(\d+7)-(x{10,20}) /g;
(my $changed = $text) =~ s/(\d+)-/<$1>/g;
print scalar(@found), ' ', length($changed), ' ', sha256_hex($changed), "\n";

my @makers = map { my $n = $_; sub { return [ map { $_ * $n } 1 .. $_[0] ] } } 1 .. 2000;
my $sum = 0;
for my $maker (@makers) { $sum += $_ for @{ $maker->(1 + next_random(100)) }; }
print "$sum\n";

for (1 .. 50_000) {
    my $parent = { name => "p$_", children => [] };
    for my $k (1 .. 3) {
        my $child = { parent => $parent, name => "c$k" };
        weaken $child->{parent};
        push @{ $parent->{children} }, $child;
    }
}
my $long = '';
$long .= chr(65 + $_ % 26) x 37 for 1 .. 200_000;
print length($long), ' ', sha256_hex($long), "\n";
my $pid = fork() // die "fork: $!";
if (!$pid) { my @more = map { "child $_" } 1 .. 100_000; exit(@more == 100_000 ? 0 : 1); }
waitpid $pid, 0;
print "child $?\n";
